//! NVIDIA's tools.

pub(super) mod dcgm; // `dcgmi diag -j`, versions 4 and 3
mod fields; // Where nvidia-smi's three formats hold each metric
pub(super) mod gpu_burn; // Multiplication that is checked
pub(super) mod gpu_fryer; // Multiplication that is timed
mod leaf; // One value of nvidia-smi, or why there is none
pub(super) mod nccl; // Tables of nccl-tests
pub(super) mod nccl_json; // Their file
pub(super) mod nvbandwidth; // Copies between host and GPUs
pub(super) mod nvlink; // `nvidia-smi nvlink -s`
pub(super) mod proftester; // DCGM's load generator
pub(super) mod smi_csv; // `nvidia-smi --query-gpu`
pub(super) mod smi_text; // `nvidia-smi -q`
pub(super) mod smi_xml; // `nvidia-smi -q -x`
pub(super) mod topo; // `nvidia-smi topo -m`
