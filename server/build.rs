//! Without this line a new migration file would silently stay out of the binary.
fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
