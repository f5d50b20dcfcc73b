//! Failures of jobs: a code that programs decide on, and a message for an engineer.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares the known codes once: the variant, the word on the wire, and its meaning.
macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// The code of a failure. The wire and the database hold the word, in snake case. A word from
        /// a newer program is kept as [`FailureCode::Other`] and written back unchanged.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum FailureCode {
            $($(#[$doc])* $variant,)*
            /// A code that this program does not know.
            Other(String),
        }

        impl FailureCode {
            /// Every known code, in the order of declaration.
            pub const KNOWN: &[Self] = &[$(Self::$variant),*];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for FailureCode {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }
    };
}

failure_codes! {
    /// The image stream ended because the disk writer had failed.
    Abandoned = "abandoned",
    /// The agent's own code panicked.
    AgentBug = "agent_bug",
    /// Another machine reported with the boot's nonce. The agent trusts neither report.
    AlreadyReported = "already_reported",
    /// The plan of a node job is inconsistent.
    BadPlan = "bad_plan",
    /// The node cannot read the suite of gates.
    BadSuite = "bad_suite",
    /// The BMC did not accept the BIOS settings.
    BiosNotSet = "bios_not_set",
    /// The BMC accepted the BIOS settings and lost them.
    BiosSettingsDropped = "bios_settings_dropped",
    /// The agent could not fetch a blob from the server.
    BlobNotFetched = "blob_not_fetched",
    /// The BMC is busy.
    BmcBusy = "bmc_busy",
    /// The BMC shows another certificate than the pinned one.
    BmcCertificateChanged = "bmc_certificate_changed",
    /// The BMC refused the credentials.
    BmcCredentials = "bmc_credentials",
    /// The BMC sent an answer that the agent cannot read.
    BmcGarbage = "bmc_garbage",
    /// The agent's host lacks the tool that talks to the BMC.
    BmcNoTool = "bmc_no_tool",
    /// The BMC did not accept the next password. The former password is kept.
    BmcNotRotated = "bmc_not_rotated",
    /// The BMC accepted a command and the machine did not change.
    BmcNothingHappened = "bmc_nothing_happened",
    /// The address of the BMC is outside of the networks that the password may go to.
    BmcOutside = "bmc_outside",
    /// The BMC did not answer in time.
    BmcTimeout = "bmc_timeout",
    /// The BMC cannot be reached.
    BmcUnreachable = "bmc_unreachable",
    /// The BMC does not support the operation.
    BmcUnsupported = "bmc_unsupported",
    /// Another job holds the node's network boot.
    BootBusy = "boot_busy",
    /// The network boot of the node cannot be prepared from the order.
    BootSpec = "boot_spec",
    /// Another machine interfered with the node's network boot.
    BootSpoiled = "boot_spoiled",
    /// The live image did not report within the boot window.
    BootWindowOver = "boot_window_over",
    /// A program reached a state that its code rules out.
    Bug = "bug",
    /// The repository's address does not name a bundle.
    BundleUnknown = "bundle_unknown",
    /// apt could not download from the bundle.
    BundleUnreachable = "bundle_unreachable",
    /// The agent cannot read the bundle.
    BundleUnreadable = "bundle_unreadable",
    /// Another job changes the node.
    Busy = "busy",
    /// The machine refuses certificates of Muster's CA.
    CaNotTrusted = "ca_not_trusted",
    /// The job was cancelled.
    Cancelled = "cancelled",
    /// Another file beside the CDI specification of the GPU driver defines the same devices.
    CdiConflict = "cdi_conflict",
    /// The files of the GPU driver for containers are incomplete.
    CdiIncomplete = "cdi_incomplete",
    /// The node's clock cannot be set.
    Clock = "clock",
    /// The job's deadline passed on the node.
    Deadline = "deadline",
    /// The content has another digest than the order names.
    DigestMismatch = "digest_mismatch",
    /// More than one disk has the serial number.
    DiskAmbiguous = "disk_ambiguous",
    /// The disk changed between two steps of a job.
    DiskChanged = "disk_changed",
    /// The file system is full.
    DiskFull = "disk_full",
    /// The disk is mounted or otherwise in use.
    DiskInUse = "disk_in_use",
    /// No disk has the serial number.
    DiskMissing = "disk_missing",
    /// The image does not fit on the disk.
    DiskTooSmall = "disk_too_small",
    /// The output of `dkms status` cannot be read.
    DkmsUnreadable = "dkms_unreadable",
    /// The job failed and did not say why.
    Failed = "failed",
    /// The node could not fetch a blob from the agent.
    FetchFailed = "fetch_failed",
    /// The BMC did not start the firmware update.
    FirmwareNotBegun = "firmware_not_begun",
    /// The firmware update ended and the version is unchanged.
    FirmwareUnchanged = "firmware_unchanged",
    /// The firmware update did not end in time.
    FirmwareUpdateEndless = "firmware_update_endless",
    /// The BMC reports that the firmware update failed.
    FirmwareUpdateFailed = "firmware_update_failed",
    /// `update-grub` failed.
    GrubFailed = "grub_failed",
    /// A person has not confirmed the machine's host key.
    HostKeyUnconfirmed = "host_key_unconfirmed",
    /// The BMC or the system belongs to another machine.
    IdentityMismatch = "identity_mismatch",
    /// The image is damaged.
    ImageMalformed = "image_malformed",
    /// The image has no valid signature of a trusted key.
    ImageUnsigned = "image_unsigned",
    /// `update-initramfs` failed.
    InitramfsFailed = "initramfs_failed",
    /// The input of a command cannot be read.
    Input = "input",
    /// The operating system reported an error.
    Io = "io",
    /// The process of the node job ended without a result.
    JobDied = "job_died",
    /// Another attempt of the job began while the reader followed the former one.
    JobRestarted = "job_restarted",
    /// The server did not renew the lease in time.
    LeaseLost = "lease_lost",
    /// The node cannot open the socket that the plan asks for.
    Listen = "listen",
    /// Input violates its format.
    Malformed = "malformed",
    /// The disk carries the mark of a claim that is not released.
    MarkedInUse = "marked_in_use",
    /// A kernel module cannot be loaded.
    ModuleFailed = "module_failed",
    /// `modprobe` or `modinfo` finds no file of the kernel module.
    ModuleUnknown = "module_unknown",
    /// A gate needs something that the machine lacks.
    Needs = "needs",
    /// The node has no BMC, and the order needs one.
    NoBmc = "no_bmc",
    /// The node does not know the job.
    NoJob = "no_job",
    /// The job has no plan on the node.
    NoPlan = "no_plan",
    /// Every port of the range is in use.
    NoPort = "no_port",
    /// A disk may be written by a job only.
    NoSpool = "no_spool",
    /// The system carries no trust of the site: it is no live image of Muster.
    NoTrust = "no_trust",
    /// A gate names a variable that has no value here.
    NoVariable = "no_variable",
    /// The node's work ended without a result.
    NodeJobLost = "node_job_lost",
    /// The node sent an answer that the agent cannot read.
    NodeProtocol = "node_protocol",
    /// The node still differs from the stack after every step.
    NotConverged = "not_converged",
    /// The order cannot be built: a declared object is missing or unreadable.
    NotDeclared = "not_declared",
    /// The listener of a pair measurement did not start.
    NotListening = "not_listening",
    /// The command runs in the live image only.
    NotLive = "not_live",
    /// The firmware's boot entries cannot be written.
    Nvram = "nvram",
    /// The reader asked for a part of the job's log that does not exist.
    OffsetPastEnd = "offset_past_end",
    /// The agent cannot read the order. A newer agent may.
    OrderUnknown = "order_unknown",
    /// The owner of a file does not exist on the node.
    OwnerUnknown = "owner_unknown",
    /// dpkg was interrupted while it unpacked the package.
    PackageHalfInstalled = "package_half_installed",
    /// Another process holds the lock of dpkg or apt.
    PackageLockHeld = "package_lock_held",
    /// The contents of a package cannot be listed.
    PackageUnreadable = "package_unreadable",
    /// apt or dpkg failed, or dkms has not installed a module.
    PackagesFailed = "packages_failed",
    /// apt finds no solution for the packages of the lock.
    PackagesUnresolvable = "packages_unresolvable",
    /// A new partition did not appear.
    PartitionMissing = "partition_missing",
    /// The other node of a pair measurement did not come or did not leave.
    PeerTimeout = "peer_timeout",
    /// The server refused the permit.
    PermitRefused = "permit_refused",
    /// The agent could not observe that a power cycle happened.
    PowerCycleUnproven = "power_cycle_unproven",
    /// The BMC shows the machine on after it was switched off.
    PowerOffNotSeen = "power_off_not_seen",
    /// The BMC shows the machine off after it was switched on.
    PowerOnNotSeen = "power_on_not_seen",
    /// The BMC shows neither on nor off.
    PowerUnknown = "power_unknown",
    /// Without a BMC the power of the machine cannot be observed.
    PowerUnobservable = "power_unobservable",
    /// The plan speaks another protocol version.
    Protocol = "protocol",
    /// The server was restored from a backup, and the job was given back.
    PutBack = "put_back",
    /// The live image could not report to the agent.
    ReportFailed = "report_failed",
    /// The result of the step is larger than the server stores.
    ResultTooLarge = "result_too_large",
    /// The disk reports that a sanitize operation failed.
    SanitizeFailed = "sanitize_failed",
    /// The server does not answer.
    ServerAway = "server_away",
    /// The server sent an answer that the agent cannot read.
    ServerGarbled = "server_garbled",
    /// The server refused the agent's call.
    ServerRefused = "server_refused",
    /// A systemd unit failed or did not start.
    ServiceFailed = "service_failed",
    /// slurm.conf or an included file cannot be read.
    SlurmFiles = "slurm_files",
    /// Slurm sent an answer that the agent cannot read.
    SlurmGarbage = "slurm_garbage",
    /// Jobs still use the node.
    SlurmInUse = "slurm_in_use",
    /// slurmctld needs a restart, and no command for it is declared.
    SlurmNoRestart = "slurm_no_restart",
    /// The node did not reach the awaited state in Slurm in time.
    SlurmNotClean = "slurm_not_clean",
    /// Slurm does not list the node.
    SlurmNotListed = "slurm_not_listed",
    /// slurmctld did not come back with the new configuration.
    SlurmNotRestarted = "slurm_not_restarted",
    /// Slurm refused the command.
    SlurmRefused = "slurm_refused",
    /// Slurm did not answer in time.
    SlurmTimeout = "slurm_timeout",
    /// `scontrol` is missing on the agent's host.
    SlurmToolMissing = "slurm_tool_missing",
    /// slurmctld cannot be reached.
    SlurmUnreachable = "slurm_unreachable",
    /// Slurm's included files cannot be written.
    SlurmUnwritable = "slurm_unwritable",
    /// The new files would remove nodes that other owners listed.
    SlurmWouldRemove = "slurm_would_remove",
    /// The system refused the agent's certificate or key.
    SshAuthRefused = "ssh_auth_refused",
    /// The system is not the one that was expected after the login.
    SshBadLogin = "ssh_bad_login",
    /// The command exited with an error and without a failure of its own.
    SshExit = "ssh_exit",
    /// The system shows another host key than the expected one.
    SshHostKeyMismatch = "ssh_host_key_mismatch",
    /// The SSH connection broke.
    SshLost = "ssh_lost",
    /// The command did not end in time.
    SshTimeout = "ssh_timeout",
    /// The command wrote more output than the agent accepts.
    SshTooMuchOutput = "ssh_too_much_output",
    /// No SSH server answered, or the login did not complete.
    SshUnreachable = "ssh_unreachable",
    /// A later attempt or another agent process has taken over.
    Stale = "stale",
    /// The node works on a later assignment than the order.
    StaleOnNode = "stale_on_node",
    /// systemd-run could not start the node job.
    StartFailed = "start_failed",
    /// A process hangs in the kernel and cannot be killed.
    Stuck = "stuck",
    /// The suite of gates that the run began with does not exist any more.
    SuiteGone = "suite_gone",
    /// A kernel parameter cannot be set.
    SysctlFailed = "sysctl_failed",
    /// The output of systemctl cannot be read.
    SystemdUnreadable = "systemd_unreadable",
    /// The job did not end within its time.
    Timeout = "timeout",
    /// A tool failed.
    ToolFailed = "tool_failed",
    /// A tool cannot be run because of an operating-system error.
    ToolIo = "tool_io",
    /// A tool is not installed.
    ToolMissing = "tool_missing",
    /// A tool did not end within its time.
    ToolTimeout = "tool_timeout",
    /// apt would change packages that the lock does not name.
    UnplannedChange = "unplanned_change",
    /// A wiped disk holds data, or the wipe cannot be verified.
    Unsanitised = "unsanitised",
    /// The command line cannot be read.
    Usage = "usage",
    /// A disk of the wipe's permit has no block that was read back.
    WipeIncomplete = "wipe_incomplete",
}

impl FailureCode {
    /// Whether the connection to the system failed, whatever the command was.
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self,
            Self::SshAuthRefused
                | Self::SshBadLogin
                | Self::SshHostKeyMismatch
                | Self::SshLost
                | Self::SshTimeout
                | Self::SshTooMuchOutput
                | Self::SshUnreachable
        )
    }

    /// The same code, with the word of an unknown code cut to `characters`.
    pub fn shortened(&self, characters: usize) -> Self {
        match self {
            Self::Other(word) => Self::Other(word.chars().take(characters).collect()),
            known => known.clone(),
        }
    }
}

impl std::fmt::Display for FailureCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FailureCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FailureCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|word| Self::from(word.as_str()))
    }
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A stable word: `disk_ambiguous`, `digest_mismatch`, `permit_refused`…
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub code: FailureCode,
    /// What happened, for an engineer at 3 am. Programs do not read it.
    pub message: String,
    /// Whether another attempt can succeed.
    pub retryable: bool,
}

impl Failure {
    /// A failure that another attempt repeats.
    pub fn fatal(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: false,
        }
    }

    /// A failure that may pass: a broken connection, a busy device.
    pub fn retryable(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_wire() {
        for code in FailureCode::KNOWN {
            assert_eq!(&FailureCode::from(code.as_str()), code);
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(&serde_json::from_str::<FailureCode>(&json).unwrap(), code);
        }
        let newer = FailureCode::from("from_a_newer_agent");
        assert_eq!(newer, FailureCode::Other("from_a_newer_agent".into()));
        assert_eq!(
            serde_json::to_string(&newer).unwrap(),
            r#""from_a_newer_agent""#
        );
    }
}
