//! Rebuilds the crate for a new migration file, which Cargo would otherwise miss.
fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
