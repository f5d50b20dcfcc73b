# A site with its racks and nodes, all from one file: nodes.csv is what the machines' vendor sends, one line each.
#
#   export MUSTER_URL=https://muster.example MUSTER_TOKEN_FILE=~/muster.token
#   TF_VAR_bmc_password=... terraform apply

terraform {
  required_version = ">= 1.11"
  required_providers {
    muster = {
      source = "muster/muster"
    }
  }
}

# Ephemeral: it is in no plan and no state.
variable "bmc_password" {
  type      = string
  ephemeral = true
}

locals {
  nodes = { for node in csvdecode(file("${path.module}/nodes.csv")) : node.name => node }
  racks = toset([for node in local.nodes : node.rack])
}

resource "muster_site" "north" {
  name = "north"
  # Passwords of BMCs go to these networks only.
  spec = { bmc_networks = ["10.20.0.0/16"] }
}

resource "muster_credential" "bmc" {
  name           = "bmc"
  spec           = { purpose = "bmc", user = "muster" }
  secret         = var.bmc_password
  secret_version = "2026-01"
}

resource "muster_subnet" "provisioning" {
  name = "north-provisioning"
  spec = {
    site          = muster_site.north.name
    network       = "10.10.0.0/22"
    agent_address = "10.10.0.2"
    gateway       = "10.10.0.1"
    mode          = "authoritative"
  }
}

resource "muster_hardware_profile" "cpu" {
  name = "cpu-2x32"
  spec = {
    model                  = "cpu-2x32"
    sockets                = 2
    cores_per_socket       = 32
    memory_mib             = 510000
    schedulable_memory_mib = 490000
    root_disk              = { transport = "nvme", max_gib = 1000 }
    power_max_w            = 600
  }
}

resource "muster_rack" "all" {
  for_each = local.racks
  name     = each.key
  labels   = { row = "a" }
  spec     = { site = muster_site.north.name, units = 42, power_budget_w = 17000 }
}

resource "muster_node" "all" {
  for_each = local.nodes
  name     = each.key
  spec = {
    site      = muster_site.north.name
    rack      = muster_rack.all[each.value.rack].name
    rack_unit = each.value.unit
    profile   = muster_hardware_profile.cpu.name
    power     = { redfish = { bmc = { address = each.value.bmc, credential = muster_credential.bmc.name } } }
    macs      = [{ mac = each.value.mac, subnet = muster_subnet.provisioning.name }]
  }
}

output "states" {
  description = "Where each node is on its way."
  value       = { for name, node in muster_node.all : name => node.status.state }
}
