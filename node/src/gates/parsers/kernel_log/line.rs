//! Removes the prefix of a log line: `dmesg` in all of its time formats, raw or decoded,
//! `journalctl -k` in its short formats, rsyslog, and /dev/kmsg. rsyslog and journalctl add their
//! own prefix before the prefix of the kernel.

/// Starts of messages that only the kernel writes. Each is longer than the name of a process.
const STARTS: [&str; 4] = [
    " kernel: Linux version ",
    "] Linux version ",
    ": NVRM: Xid (PCI:",
    "] NVRM: Xid (PCI:",
];

/// Returns the message of a line without time, host and level, or `None` for a line of another
/// format. An indented line always continues the previous line, even if its text looks like a new
/// message.
pub(super) fn message(line: &str) -> Option<&str> {
    if line.starts_with([' ', '\t']) {
        return None;
    }
    if let Some(message) = record(line) {
        return Some(behind_caller(message).unwrap_or(message));
    }
    let line = leveled(line).or_else(|| decoded(line)).unwrap_or(line);
    let message = bracketed(line)
        .map(|message| of_the_kernel(message).unwrap_or(message))
        .or_else(|| dated(line))
        .or_else(|| syslog(line))
        .or_else(|| full(line))
        .or_else(|| unix(line))?;
    let message = bracketed(message).unwrap_or(message);
    Some(behind_caller(message).unwrap_or(message))
}

/// Returns whether a message without its prefix still has a prefix of an unknown form.
pub(super) fn is_prefixed(message: &str) -> bool {
    STARTS.iter().any(|start| message.contains(start))
}

/// Removes `[ T3919]` or `[   C12]`: the thread or processor writing the message. A kernel with
/// `CONFIG_PRINTK_CALLER` puts the caller before each message (`print_caller` of
/// kernel/printk/printk.c). dmesg prints the caller after the time.
fn behind_caller(message: &str) -> Option<&str> {
    let (caller, rest) = message.trim_start().strip_prefix('[')?.split_once(']')?;
    let known = caller
        .trim_start()
        .strip_prefix(['T', 'C'])
        .is_some_and(digits);
    known.then(|| rest.strip_prefix(' ').unwrap_or(rest))
}

/// Returns whether journalctl itself wrote the line, such as `-- Boot 6a… --`.
pub(super) fn is_remark(line: &str) -> bool {
    line.starts_with("-- ")
}

/// `dmesg -r`: `<3>[   12.345678] message`
fn leveled(line: &str) -> Option<&str> {
    let (level, rest) = line.strip_prefix('<')?.split_once('>')?;
    digits(level).then_some(rest)
}

/// `dmesg -x`: `kern  :err   : [   12.345678] message`
fn decoded(line: &str) -> Option<&str> {
    const FACILITIES: [&str; 12] = [
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron",
        "authpriv", "ftp",
    ];
    let (facility, rest) = line.split_once(':')?;
    let (level, rest) = rest.split_once(':')?;
    let known = FACILITIES.contains(&facility.trim())
        && level.trim().chars().all(|c| c.is_ascii_lowercase());
    known.then(|| rest.trim_start())
}

/// `[   12.345678] message`, `[Sun Feb 23 16:24:18 2025] message`
fn bracketed(line: &str) -> Option<&str> {
    let (time, message) = line.strip_prefix('[')?.split_once(']')?;
    is_time(time.trim()).then(|| message.strip_prefix(' ').unwrap_or(message))
}

/// Returns whether the text in brackets is a time: seconds, with the change since the line before
/// (`dmesg -d`, `journalctl -o short-delta`) or as the change alone (`dmesg -e`), or a date.
fn is_time(time: &str) -> bool {
    if let Some((at, change)) = time.split_once('<') {
        let change = change.strip_suffix('>').unwrap_or_default().trim();
        return is_change(change) && (at.is_empty() || is_seconds(at.trim()));
    }
    let words: Vec<&str> = time.split_whitespace().collect();
    match words[..] {
        [seconds] => is_change(seconds),
        // A change of ten seconds and more has spaces after the sign.
        ["+" | "-", seconds] => is_seconds(seconds),
        [day, clock] => is_day_of_month(day) && is_clock(clock),
        [day, month, number, clock, year] => {
            let named = day.len() == 3 && month.len() == 3;
            named && digits(number) && is_clock(clock) && digits(year)
        }
        _ => false,
    }
}

fn is_seconds(text: &str) -> bool {
    text.split_once('.')
        .is_some_and(|(seconds, rest)| digits(seconds) && digits(rest))
}

fn is_change(text: &str) -> bool {
    is_seconds(text.strip_prefix(['+', '-']).unwrap_or(text))
}

/// `Feb23`
fn is_day_of_month(text: &str) -> bool {
    text.split_at_checked(3)
        .is_some_and(|(month, day)| month.chars().all(|c| c.is_ascii_alphabetic()) && digits(day))
}

/// `16:24:18`, and `16:24:18.123456` of `journalctl -o short-precise`.
fn is_clock(text: &str) -> bool {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    clock.contains(':') && clock.split(':').all(digits) && digits(fraction)
}

/// `2025-02-23`
fn is_date(text: &str) -> bool {
    text.split('-').count() == 3 && text.split('-').all(digits)
}

/// `2025-02-23T16:24:18,123456+01:00 message` of dmesg. journalctl and rsyslog write the time with
/// a point or whole seconds, and the host.
fn dated(line: &str) -> Option<&str> {
    let (time, message) = line.split_once(' ')?;
    let (date, clock) = time.split_once('T')?;
    if !is_date(date) || !clock.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if clock.contains(',') {
        return Some(of_the_kernel(message).unwrap_or(message));
    }
    origin(message)
}

/// `Feb 23 16:24:18 host kernel: message`, also with a fraction of a second
fn syslog(line: &str) -> Option<&str> {
    let (month, rest) = word(line)?;
    let (day, rest) = word(rest)?;
    let (clock, rest) = word(rest)?;
    let known = month.len() == 3 && digits(day) && is_clock(clock);
    known.then(|| origin(rest)).flatten()
}

/// `journalctl -o short-full`: `Sun 2025-02-23 16:24:18 CET host kernel: message`
fn full(line: &str) -> Option<&str> {
    let (day, rest) = word(line)?;
    let (date, rest) = word(rest)?;
    let (clock, rest) = word(rest)?;
    let (_zone, rest) = word(rest)?;
    let known = day.len() == 3 && is_date(date) && is_clock(clock);
    known.then(|| origin(rest)).flatten()
}

/// `journalctl -o short-unix`: `1740324258.123456 host kernel: message`
fn unix(line: &str) -> Option<&str> {
    let (seconds, rest) = word(line)?;
    is_seconds(seconds).then(|| origin(rest)).flatten()
}

/// `3,339,5140900,-;message`
fn record(line: &str) -> Option<&str> {
    let (head, message) = line.split_once(';')?;
    let fields: Vec<&str> = head.split(',').collect();
    (fields.len() >= 4 && fields[..3].iter().all(|field| digits(field))).then_some(message)
}

/// Removes `host kernel: `, or `kernel: ` of `journalctl --no-hostname`.
fn of_the_kernel(text: &str) -> Option<&str> {
    let message = behind_host(text)
        .and_then(|rest| rest.strip_prefix("kernel:"))
        .or_else(|| text.strip_prefix("kernel:"))?;
    Some(message.strip_prefix(' ').unwrap_or(message))
}

/// Removes `host kernel: `. A line of another program, `host systemd[1]: message`, is no message of
/// the kernel, and becomes the name of the program. Without a process id, the word may be the start
/// of a driver's message, so the line has an unknown form.
fn origin(text: &str) -> Option<&str> {
    if let message @ Some(_) = of_the_kernel(text) {
        return message;
    }
    let rest = behind_host(text).unwrap_or(text);
    let (program, _) = rest.split_once(": ")?;
    let (name, id) = program.strip_suffix(']')?.split_once('[')?;
    (!name.is_empty() && !name.contains(' ') && digits(id)).then_some(program)
}

fn behind_host(text: &str) -> Option<&str> {
    let (host, rest) = text.split_once(' ')?;
    is_host(host).then_some(rest)
}

fn is_host(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    !text.is_empty() && text.chars().all(is_part)
}

/// Splits off the first word.
fn word(text: &str) -> Option<(&str, &str)> {
    text.trim_start().split_once(' ')
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{is_prefixed, message};

    #[test]
    fn every_time_format_leaves_the_message() {
        let lines = [
            "[   12.345678] NVRM: message",
            "[Sun Feb 23 16:24:18 2025] NVRM: message",
            "2025-02-23T16:24:18,123456+01:00 NVRM: message",
            "2025-02-23T16:24:18+0100 node-7 kernel: NVRM: message",
            "Feb 23 16:24:18 node-7 kernel: NVRM: message",
            "kern  :err   : [   12.345678] NVRM: message",
            "3,339,5140900,-;NVRM: message",
            // With the caller: as written by the kernel, as written by dmesg, and from an
            // interrupt.
            "[  520.899558][ T3919] NVRM: message",
            "[  520.899558] [   T3919] NVRM: message",
            "[  520.899558] [     C12] NVRM: message",
            "kern  :err   : [  520.899558] [   T3919] NVRM: message",
            "2025-02-23T16:24:18,123456+01:00 [   T3919] NVRM: message",
            "3,339,5140900,-,caller=T3919;NVRM: message",
            // dmesg -r, -d, -e, and facilities of programs.
            "<3>[   12.345678] NVRM: message",
            "[   12.345678 <    0.000024>] NVRM: message",
            "[<    0.000024>] NVRM: message",
            "[Feb23 16:24] NVRM: message",
            "[  +0.000024] NVRM: message",
            "[  -0.000003] NVRM: message",
            "authpriv:info  : [   12.345678] NVRM: message",
            // journalctl: short-precise, short-iso-precise, short-full, short-unix, short-monotonic
            // and short-delta.
            "Feb 23 16:24:18.123456 node-7 kernel: NVRM: message",
            "Feb  3 16:24:18 node-7 kernel: NVRM: message",
            "2025-02-23T16:24:18.123456+01:00 node-7 kernel: NVRM: message",
            "Sun 2025-02-23 16:24:18 CET node-7 kernel: NVRM: message",
            "1740324258.123456 node-7 kernel: NVRM: message",
            "[367813.574818] node-7 kernel: NVRM: message",
            "[   12.345678 <    0.000024>] node-7.rack kernel: NVRM: message",
            // journalctl --no-hostname
            "Feb 23 16:24:18 kernel: NVRM: message",
            "[367813.574818] kernel: NVRM: message",
            // rsyslog, with the kernel's own prefix behind its own, and with the caller.
            "Feb 23 16:24:18 node-7 kernel: [   12.345678] NVRM: message",
            "2025-02-23T16:24:18.123456+01:00 node-7 kernel: [   12.345678] NVRM: message",
            "Feb 23 16:24:18 node-7 kernel: [   12.345678] [ T3919] NVRM: message",
            "<4>Feb 23 16:24:18 node-7 kernel: [   12.345678] NVRM: message",
        ];
        for line in lines {
            assert_eq!(message(line), Some("NVRM: message"), "{line}");
        }
        for line in [
            "",
            "NVRM: message",
            "[soon] NVRM: message",
            "[] NVRM: message",
            "[<>] NVRM: message",
            "<x>[   12.345678] NVRM: message",
            "<4>1 2025-02-23T16:24:18.123456+01:00 node-7 kernel - - - NVRM: message",
            "NVRM: message [   12.345678]",
            "2025-02-23T16:24:18+0100 NVRM: message",
            "2025-02-23T16:24:18+0100 node-7 NVRM: message",
            "Feb 23 16:24:18 NVRM: message",
            "Feb 23 16:24:18 node-7 NVRM: message",
            "Feb 23 16:24:18 nvme nvme0: message",
            "Feb 23 16:24:18 node 7 kernel: message",
            "1740324258.123456 NVRM: message",
            "1740324258 node-7 kernel: NVRM: message",
            "dmesg: read kernel buffer failed: Operation not permitted",
        ] {
            assert_eq!(message(line), None, "{line}");
        }
    }

    #[test]
    fn each_part_of_a_time_is_looked_at() {
        for line in [
            "kern  :ERR   : [   12.345678] m",
            "kernx :err   : [   12.345678] m",
            "[12.a] m",
            "[a.12] m",
            "[12.] m",
            "[Sund Feb 23 16:24:18 2025] m",
            "[Sun Febr 23 16:24:18 2025] m",
            "[Sun Feb x 16:24:18 2025] m",
            "[Sun Feb 23 16:x:18 2025] m",
            "[Sun Feb 23 16:24:18 x] m",
            "[Febr23 16:24] m",
            "[Feb23 16] m",
            "[F3b23 16:24] m",
            "[12.3 <x>] m",
            "[x <0.1>] m",
            "[++1.2] m",
            "Feb 23 16:24:18.x a kernel: m",
            "Sun 2025-02 16:24:18 CET a kernel: m",
            "Sunday 2025-02-23 16:24:18 CET a kernel: m",
            "12.x a kernel: m",
            "2025-02T16:24:18 m",
            "2025-02-xT16:24:18 m",
            "2025-02-23Tx m",
            "Febr 23 16:24:18 node-7 kernel: m",
            "Feb x 16:24:18 node-7 kernel: m",
            "Feb 23 16:x:18 node-7 kernel: m",
            "3,339,514;m",
            "3,x,514,-;m",
        ] {
            assert_eq!(message(line), None, "{line}");
        }
        for line in [
            "[   12.3] m",
            "kern  :err   : [   12.3] m",
            "2025-02-23T16:24:18 a kernel: m",
            "2025-02-23T16:24:18,1+01:00 m",
            "Feb 23 16:24:18 a kernel: m",
            "3,339,514,-;m",
        ] {
            assert_eq!(message(line), Some("m"), "{line}");
            assert_eq!(
                message(&format!("  {line}")),
                None,
                "{line}: what another one's line goes on with"
            );
        }
        assert_eq!(
            message("2025-02-23T16:24:18,1+01:00 a b kernel: m"),
            Some("a b kernel: m"),
            "the kernel's own words"
        );
        assert_eq!(message("2025-02-23T16:24:18 a b kernel: m"), None);
        assert_eq!(message("3,339,514,-,caller=T1;m"), Some("m"));
        for own in [
            "[Hardware Error]: m",
            "[drm:amdgpu] m",
            "[T] m",
            "[X1] m",
            "[T1x] m",
            "[T1",
        ] {
            assert_eq!(
                message(&format!("[   12.345678] {own}")),
                Some(own),
                "no caller"
            );
        }
    }

    #[test]
    fn a_program_is_not_the_kernel() {
        for line in [
            "Feb 23 16:24:18 a systemd[1]: NVRM: m",
            "2025-02-23T16:24:18+0100 a systemd[1]: I/O error",
            "1740324258.123456 a systemd[1]: m",
            "Feb 23 16:24:18 systemd[1]: m",
        ] {
            assert_eq!(message(line), Some("systemd[1]"), "{line}");
        }
        assert_eq!(
            message("[   12.345678] usb 1-1: Product: m"),
            Some("usb 1-1: Product: m"),
            "dmesg has no host"
        );
    }

    #[test]
    fn a_prefix_that_is_left_over_is_seen() {
        for left in [
            "12:01 node-7 kernel: Linux version 6.8.0",
            "(0) [x] Linux version 6.8.0",
            "node-7 kern: NVRM: Xid (PCI:0000:9b:00): 79, pid=1",
            "{12.3} [x] NVRM: Xid (PCI:0000:9b:00): 79, pid=1",
        ] {
            assert!(is_prefixed(left), "{left}");
        }
        for own in [
            "Linux version 6.8.0",
            "loadable module for Linux version 6.1.0",
            "NVRM: Xid (PCI:0000:9b:00): 79, pid=1",
        ] {
            assert!(!is_prefixed(own), "{own}");
        }
    }
}
