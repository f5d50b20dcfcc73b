//! The Terraform provider as the tests start it: built with them, so never an older one.

fn main() -> std::process::ExitCode {
    terraform_provider_muster::main()
}
