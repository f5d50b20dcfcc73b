//! NVIDIA's tools.

pub(super) mod dcgm; // `dcgmi diag -j`, versions 4 and 3
mod fields; // Location of each metric in nvidia-smi's three formats
pub(super) mod gpu_burn; // Multiplication with checked results
pub(super) mod gpu_fryer; // Multiplication with measured speed
mod leaf; // A value of nvidia-smi, or the reason for its absence
pub(super) mod nccl; // Tables of nccl-tests
pub(super) mod nccl_json; // JSON file of nccl-tests
pub(super) mod nvbandwidth; // Copies between host and GPUs
pub(super) mod nvlink; // `nvidia-smi nvlink -s`
pub(super) mod proftester; // DCGM's load generator
pub(super) mod smi_csv; // `nvidia-smi --query-gpu`
pub(super) mod smi_text; // `nvidia-smi -q`
pub(super) mod smi_xml; // `nvidia-smi -q -x`
pub(super) mod topo; // `nvidia-smi topo -m`
