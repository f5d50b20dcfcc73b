//! NVIDIA's tools.

pub(super) mod cuda; // Errors of CUDA that name broken hardware
pub(super) mod dcgm; // `dcgmi diag -j`, versions 4 and 3
mod dcgm_errors; // Meanings of the error ids in results of DCGM
mod fields; // Places of each metric in nvidia-smi's three formats
pub(super) mod gpu_burn; // Multiplication with checked results
pub(super) mod gpu_fryer; // Multiplication with measured speed
mod head; // Versions beside the GPUs in nvidia-smi's long formats
mod leaf; // A value of nvidia-smi, or the reason for its absence
pub(super) mod nccl; // Tables of nccl-tests
pub(super) mod nccl_json; // JSON file of nccl-tests
pub(super) mod nvbandwidth; // Copies between host and GPUs
pub(super) mod nvlink; // `nvidia-smi nvlink -s`
pub(super) mod proftester; // DCGM's load generator
pub(super) mod smi_csv; // `nvidia-smi --query-gpu`
mod smi_status; // Exit status of nvidia-smi
pub(super) mod smi_text; // `nvidia-smi -q`
pub(super) mod smi_xml; // `nvidia-smi -q -x`
pub(super) mod topo; // `nvidia-smi topo -m`
