//! terraform-provider-muster, as Terraform starts it.

fn main() -> std::process::ExitCode {
    terraform_provider_muster::main()
}
