//! Errors of an insertion, by the texts of modprobe: `insmod_insert` in kmod's tools/modprobe.c,
//! and glibc's strerror in the C locale. The causes are in the kernel's kernel/module/main.c and
//! kernel/module/signing.c.

/// EPERM: a refusal only for root.
pub(super) const NOT_PERMITTED: &str = "Operation not permitted";

/// The judgement of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The kernel refuses the module, at each attempt.
    Refused,
    /// The kernel has not judged the module.
    Unknown,
}

/// An error of an insertion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelError {
    /// The text printed by modprobe.
    pub(super) text: &'static str,
    pub(super) meaning: Meaning,
    cause: &'static str,
    step: &'static str,
}

/// All known errors, except ENODEV.
pub(super) static KERNEL_ERRORS: [KernelError; 12] = [
    KernelError {
        text: "Exec format error",
        meaning: Meaning::Refused,
        cause: "the file is damaged, or built for another kernel",
        step: "install modules built for the running kernel, or boot the kernel of the modules",
    },
    KernelError {
        text: "Unknown symbol in module, or unknown parameter (see dmesg)",
        meaning: Meaning::Refused,
        cause: "the kernel lacks a symbol of the module",
        step: "read dmesg, and install all modules of one driver version for this kernel",
    },
    KernelError {
        text: "Invalid argument",
        meaning: Meaning::Refused,
        cause: "a symbol of the kernel has another version, or an option has a wrong value",
        step: "read dmesg: build the modules for this kernel, or correct the option in /etc/modprobe.d",
    },
    KernelError {
        text: "Key was rejected by service",
        meaning: Meaning::Refused,
        cause: "the module has no good signature by a known key, as Secure Boot wants",
        step: "install signed modules, and enrol their certificate on the machine",
    },
    KernelError {
        text: "Required key not available",
        meaning: Meaning::Refused,
        cause: "the kernel does not know the key of the signature",
        step: "enrol the certificate of the modules on the machine",
    },
    KernelError {
        text: "Key has expired",
        meaning: Meaning::Refused,
        cause: "the key of the signature has expired",
        step: "sign the modules with another key, and enrol its certificate",
    },
    KernelError {
        text: "Key has been revoked",
        meaning: Meaning::Refused,
        cause: "the key of the signature is revoked",
        step: "sign the modules with another key, and enrol its certificate",
    },
    KernelError {
        text: "Bad message",
        meaning: Meaning::Refused,
        cause: "the signature is damaged",
        step: "install the package of the modules again",
    },
    KernelError {
        text: NOT_PERMITTED,
        meaning: Meaning::Refused,
        cause: "the kernel is locked down, or kernel.modules_disabled is 1",
        step: "install signed modules with an enrolled certificate, or reboot without that setting",
    },
    KernelError {
        text: "Cannot allocate memory",
        meaning: Meaning::Unknown,
        cause: "the kernel has no memory for the module",
        step: "free memory, or reboot, and run the gate again",
    },
    KernelError {
        text: "Device or resource busy",
        meaning: Meaning::Unknown,
        cause: "a module of this name is entering or leaving the kernel",
        step: "run the gate again, and reboot if the error stays",
    },
    KernelError {
        text: "Module already in kernel",
        meaning: Meaning::Unknown,
        cause: "the kernel has a module of this name already",
        step: "run the gate again, and reboot if the error stays",
    },
];

impl KernelError {
    /// Finds an error by the text printed by modprobe.
    pub(super) fn find(text: &str) -> Option<&'static Self> {
        KERNEL_ERRORS.iter().find(|error| error.text == text)
    }

    /// Returns the error with its cause and the next step.
    pub(super) fn describe(&self) -> String {
        let Self {
            text, cause, step, ..
        } = self;
        format!("{text}: {cause}; {step}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_gates_has_every_error() {
        let page = include_str!("../../../../../docs/gates.md");
        for error in &KERNEL_ERRORS {
            let verdict = match error.meaning {
                Meaning::Refused => "fail",
                Meaning::Unknown => "error",
            };
            let KernelError {
                text, cause, step, ..
            } = error;
            let row = format!("| `{text}` | `{verdict}` | {cause} | {step} |\n");
            assert!(page.contains(&row), "add to docs/gates.md: {row}");
        }
    }
}
