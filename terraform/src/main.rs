//! Entry point of `terraform-provider-muster`, started by Terraform.

fn main() -> std::process::ExitCode {
    terraform_provider_muster::main()
}
