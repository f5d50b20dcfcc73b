//! Rejected combinations of drivers, CUDA, fabric, kernels and containers, each with a correct
//! combination.

use serde_json::{Value, json};

use super::Tuple;

#[expect(clippy::too_many_lines, reason = "a table, a row for each tuple")]
pub(super) fn wrong_tuples() -> Vec<Tuple> {
    let none = || json!({});
    let blackwell = |more: &[&str]| {
        let modules: Vec<&str> = ["ib_umad"].iter().chain(more).copied().collect();
        json!({ "selector": { "gpu": "blackwell", "nvswitch": true, "nvlink5": true }, "modules_load": modules })
    };
    let nvlsm = || json!({ "nvlsm": "2025.06.6-1", "infiniband-diags": "44.0-2" });
    let grace = |text: &str| {
        json!({ "selector": { "gpu": "grace_blackwell" },
                "files": [{ "path": "/etc/modprobe.d/nvidia.conf", "mode": "0644", "content": [{ "text": text }] }] })
    };
    let large = || {
        json!({ "linux-image-6.1.0-40-amd64": null, "linux-image-6.1.0-40-64k": "6.1.153-1",
                "linux-headers-6.1.0-40-64k": "6.1.153-1", "kubelet": "1.33.1-1.1" })
    };
    let channel = "options nvidia NVreg_CreateImexChannel0=1";
    let both = "options nvidia NVreg_CreateImexChannel0=1 NVreg_CoherentGPUMemoryMode=driver";
    let all = |version: &str| {
        let names = [
            "nvidia-open",
            "nvidia-kernel-open-dkms",
            "libcuda1",
            "nvidia-modprobe",
            "nvidia-fabricmanager",
            "libnvidia-nscq",
            "libnvsdm",
        ];
        Value::Object(
            names
                .into_iter()
                .map(|name| (name.to_owned(), json!(version)))
                .collect(),
        )
    };
    let mut old = all("550.90.07-1");
    old["datacenter-gpu-manager-4-cuda12"] = json!("1:4.6.0-1");
    let mut new = all("570.124.06-1");
    new["datacenter-gpu-manager-4-cuda12"] = json!("1:4.6.0-1");
    let toolkit_of = |mut packages: Value, toolkit: &str| {
        packages["cuda-toolkit-12-8"] = Value::Null;
        packages[toolkit] = json!(format!(
            "{}.0-1",
            toolkit
                .trim_start_matches("cuda-toolkit-")
                .replace('-', ".")
        ));
        packages
    };
    let newer = |toolkit: &str| toolkit_of(new.clone(), toolkit);
    let compat = |mut packages: Value, name: &str, version: &str| {
        packages[name] = json!(version);
        packages
    };
    let major = toolkit_of(old.clone(), "cuda-toolkit-13-0");
    let cdi = |cdi: bool| json!({ "container_runtime": { "default_runtime": "runc", "cdi": cdi } });
    let peermem = || json!({ "modules_load": ["nvidia_peermem"] });
    let built = "linux-modules-nvidia-580-server-open-6.1.0-40-amd64";
    vec![
        (
            "R1",
            major.clone(),
            none(),
            &["cuda-toolkit-13-0 13.0.0-1", "driver 580", "550.90.07-1"],
            // Within CUDA 12, the driver of 12.0 is enough.
            old.clone(),
            none(),
        ),
        (
            "R1",
            // The user space of CUDA 12.8 is none for CUDA 13.
            compat(major.clone(), "cuda-compat-12-8", "570.211.01-1"),
            none(),
            &["cuda-toolkit-13-0 13.0.0-1", "cuda-compat"],
            compat(major, "cuda-compat-13-0", "580.95.05-1"),
            none(),
        ),
        (
            "R2",
            compat(old.clone(), "cuda-compat-12-6", "560.35.05-1"),
            none(),
            &["cuda-toolkit-12-8 12.8.1-1", "CUDA 12.4", "550.90.07-1"],
            compat(old, "cuda-compat-12-8", "570.211.01-1"),
            none(),
        ),
        (
            "R2",
            newer("cuda-toolkit-12-9"),
            none(),
            &["cuda-toolkit-12-9 12.9.0-1", "CUDA 12.8", "570.124.06-1"],
            newer("cuda-toolkit-12-6"),
            none(),
        ),
        (
            "R3",
            json!({ "nvidia-fabricmanager": "580.95.05-1" }),
            none(),
            &["nvidia-fabricmanager 580.95.05-1", "580.126.20-1"],
            none(),
            none(),
        ),
        (
            "R4",
            json!({ "libnvidia-nscq": "580.95.05-1" }),
            none(),
            &["libnvidia-nscq 580.95.05-1"],
            none(),
            none(),
        ),
        (
            "R4",
            json!({ "nvidia-modprobe": "580.95.05-1" }),
            none(),
            &["nvidia-modprobe 580.95.05-1", "older", "580.126.20-1"],
            json!({ "nvidia-modprobe": "595.91.07-1" }),
            none(),
        ),
        (
            "R5",
            none(),
            blackwell(&["mlx5_core"]),
            &["nvlsm, infiniband diags"],
            nvlsm(),
            blackwell(&["mlx5_core"]),
        ),
        (
            "R5",
            nvlsm(),
            blackwell(&[]),
            &["mlx5_core in modules_load"],
            nvlsm(),
            blackwell(&["mlx5-core"]),
        ),
        (
            "R5",
            json!({ "nvidia-fabricmanager": null }),
            none(),
            &["fabric manager"],
            none(),
            none(),
        ),
        (
            "R6",
            json!({ "nvidia-open": null, "nvidia-kernel-open-dkms": null, "cuda-drivers": "580.126.20-1", "nvlsm": "1", "infiniband-diags": "1" }),
            blackwell(&["mlx5_core"]),
            &[
                "cuda-drivers 580.126.20-1",
                "open kernel modules only",
                "blackwell",
            ],
            nvlsm(),
            blackwell(&["mlx5_core"]),
        ),
        (
            "R6",
            none(),
            json!({ "selector": { "gpu": "volta" } }),
            &["proprietary kernel modules only"],
            json!({ "nvidia-open": null, "nvidia-kernel-open-dkms": null, "cuda-drivers": "580.126.20-1" }),
            json!({ "selector": { "gpu": "volta" } }),
        ),
        (
            "R7",
            json!({ "linux-headers-6.1.0-40-amd64": null }),
            none(),
            &["nvidia-kernel-open-dkms", "linux-headers-6.1.0-40-amd64"],
            none(),
            none(),
        ),
        (
            "R7",
            json!({ "linux-modules-nvidia-580-server-open-6.1.0-39-amd64": "580.126.20-1" }),
            none(),
            &["6.1.0-40-amd64"],
            json!({ built: "580.126.20-1" }),
            none(),
        ),
        (
            "R8",
            json!({ "libcuda1": "580.95.05-1" }),
            none(),
            &["580.95.05-1", "580.126.20-1", "mismatch"],
            // NVIDIA's tool for choosing a driver is not part of a driver.
            json!({ "nvidia-driver-assistant": "0.21.57-1" }),
            none(),
        ),
        (
            "R9",
            json!({ built: "580.126.20-1", "doca-ofed": "3.2.3-1" }),
            peermem(),
            &["doca-ofed 3.2.3-1", "ib_register_peer_memory_client"],
            json!({ "doca-ofed": "3.2.3-1" }),
            peermem(),
        ),
        (
            "R10",
            json!({ "gdrdrv-dkms": "2.5.1-1", "nvidia-open": null, "nvidia-kernel-open-dkms": null, "libcuda1": null, "nvidia-fabricmanager": null,
            "libnvidia-nscq": null, "libnvsdm": null, "nvidia-modprobe": null }),
            none(),
            &["driver must be in the same stack"],
            json!({ "gdrdrv-dkms": "2.5.1-1" }),
            none(),
        ),
        (
            "R11",
            json!({ "datacenter-gpu-manager-4-cuda13": null, "datacenter-gpu-manager-4-cuda12": "1:4.6.0-1" }),
            none(),
            &["CUDA 13", "datacenter-gpu-manager-4-cuda13"],
            none(),
            none(),
        ),
        (
            "R11",
            json!({ "datacenter-gpu-manager-4-proprietary": "1:4.6.0-1", "datacenter-gpu-manager-4-proprietary-cuda12": "1:4.6.0-1" }),
            none(),
            &[
                "datacenter-gpu-manager-4-proprietary 1:4.6.0-1",
                "CUDA 13",
                "datacenter-gpu-manager-4-proprietary-cuda13",
            ],
            json!({ "datacenter-gpu-manager-4-proprietary": "1:4.6.0-1", "datacenter-gpu-manager-4-proprietary-cuda13": "1:4.6.0-1" }),
            none(),
        ),
        (
            "R11",
            json!({ "datacenter-gpu-manager-4-cuda13": "1:4.5.0-1" }),
            none(),
            &["4.5.0-1", "4.6.0-1"],
            none(),
            none(),
        ),
        (
            "R11",
            {
                let mut oldest = all("418.226.00-1");
                oldest["cuda-toolkit-12-8"] = Value::Null;
                oldest
            },
            none(),
            &["driver 450 or newer"],
            none(),
            none(),
        ),
        (
            "R12",
            json!({ "kubelet": "1.30.2-1.1" }),
            json!({ "beside": { "network_operator": "26.4.0" } }),
            &["1.31 to 1.35", "kubelet 1.30.2-1.1"],
            json!({ "kubelet": "1.33.1-1.1" }),
            json!({ "beside": { "network_operator": "26.4.0" } }),
        ),
        (
            "R12",
            none(),
            json!({ "beside": { "network_operator": "26.4.0", "gpu_operator": "26.3.2", "kubernetes": "1.33" } }),
            &["gpu_operator 26.3.2"],
            none(),
            json!({ "beside": { "network_operator": "26.4.0", "gpu_operator": "26.7.0", "kubernetes": "1.33" } }),
        ),
        (
            "R13",
            json!({ "doca-ofed": "3.2.3-1", "rdma-core": "44.0-2" }),
            none(),
            &["rdma-core 44.0-2", "mlnx"],
            json!({ "doca-ofed": "3.2.3-1", "rdma-core": "2510mlnx61-1.2510097" }),
            none(),
        ),
        (
            "R13",
            json!({ "mft": "4.34.0-145", "kernel-mft-dkms": "4.33.0-169" }),
            none(),
            &["4.33.0-169", "4.34.0-145"],
            // Pair from one DOCA repository: the module has the build as a fourth number.
            json!({ "mft": "4.33.0-169", "kernel-mft-dkms": "4.33.0.169-1" }),
            none(),
        ),
        (
            "R14",
            large(),
            grace("# NVreg_CreateImexChannel0=1\n"),
            &["NVreg_CreateImexChannel0=1"],
            large(),
            grace(both),
        ),
        (
            "R14",
            large(),
            grace(channel),
            &["NVreg_CoherentGPUMemoryMode=driver"],
            large(),
            grace(both),
        ),
        (
            "R14",
            json!({}),
            grace(channel),
            &["kernel 64k"],
            large(),
            grace(both),
        ),
        (
            "R15",
            json!({ "slurmd": "24.11.5-1" }),
            json!({ "beside": { "slurm_controller": "24.05.4" } }),
            &["slurmd 24.11.5-1", "23.02", "24.05"],
            json!({ "slurmd": "24.05.4-1" }),
            json!({ "beside": { "slurm_controller": "24.11.5" } }),
        ),
        (
            "R15",
            json!({ "slurmd": "22.05.8-4" }),
            json!({ "beside": { "slurm_controller": "24.11.5" } }),
            &["23.02 to 24.11"],
            json!({ "slurmd": "23.02.8-4" }),
            json!({ "beside": { "slurm_controller": "24.11.5" } }),
        ),
        (
            "R15",
            json!({ "slurmd": "24.11.5-1", "nvslurm-plugin-pyxis": "0.21.0-1" }),
            json!({ "beside": { "slurm_controller": "24.11.5", "pyxis_slurm": "24.05.4" } }),
            &["pyxis_slurm 24.05.4"],
            json!({ "slurmd": "24.11.5-1", "nvslurm-plugin-pyxis": "0.21.0-1" }),
            json!({ "beside": { "slurm_controller": "24.11.5", "pyxis_slurm": "24.11.1" } }),
        ),
        (
            "R16",
            json!({ "nvidia-imex": "580.126.20-1" }),
            none(),
            &["/etc/nvidia-imex/nodes_config.cfg"],
            json!({ "nvidia-imex": "580.126.20-1" }),
            json!({ "files": [{ "path": "/etc/nvidia-imex/nodes_config.cfg", "mode": "0644", "content": [{ "text": "10.0.0.1\n" }] }] }),
        ),
        (
            "R17",
            json!({ "rocm": "6.1.3.60103-122~22.04", "amdgpu-dkms": "1:6.12.12.60404-2202139.22.04" }),
            none(),
            &[
                "rocm 6.1.3.60103-122~22.04",
                "amdgpu-dkms 1:6.12.12.60404-2202139.22.04",
                "ROCm 6.2 to 7.1",
            ],
            json!({ "rocm": "6.4.4.60404-129~22.04", "amdgpu-dkms": "1:6.12.12.60404-2202139.22.04" }),
            none(),
        ),
        (
            "toolkit",
            json!({ "libnvidia-container1": "1.17.0-1" }),
            none(),
            &["libnvidia-container1 1.17.0-1", "1.19.1-1"],
            none(),
            none(),
        ),
        (
            "cdi",
            json!({ "containerd": "1.6.20~ds1-1+deb12u1" }),
            cdi(true),
            &[
                "containerd 1.6.20~ds1-1+deb12u1 is older",
                "`cdi = false`",
                "1.7 or newer",
            ],
            json!({ "containerd": "1.7.24~ds1-6+deb13u1" }),
            cdi(true),
        ),
        (
            "cdi",
            json!({ "containerd.io": "1.6.33-1" }),
            cdi(true),
            &["containerd.io 1.6.33-1 is older"],
            json!({ "containerd.io": "1.6.33-1" }),
            cdi(false),
        ),
    ]
}
