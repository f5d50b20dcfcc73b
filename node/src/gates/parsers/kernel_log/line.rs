//! Removes the prefix of a log line: `dmesg` in all of its time formats, `journalctl -k`, and
//! /dev/kmsg.

/// Returns the message of a line without time, host and level, or `None` for a line of another
/// format. An indented line always continues the previous line, even if its text looks like a new
/// message.
pub(super) fn message(line: &str) -> Option<&str> {
    if line.starts_with([' ', '\t']) {
        return None;
    }
    let message = decoded(line)
        .or_else(|| bracketed(line))
        .or_else(|| dated(line))
        .or_else(|| syslog(line))
        .or_else(|| record(line));
    message.map(|message| behind_caller(message).unwrap_or(message))
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

/// `dmesg -x`: `kern  :err   : [   12.345678] message`
fn decoded(line: &str) -> Option<&str> {
    const FACILITIES: [&str; 8] = [
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news",
    ];
    let (facility, rest) = line.split_once(':')?;
    let (level, rest) = rest.split_once(':')?;
    let known = FACILITIES.contains(&facility.trim())
        && level.trim().chars().all(|c| c.is_ascii_lowercase());
    known
        .then(|| bracketed(rest.trim_start()).or_else(|| dated(rest.trim_start())))
        .flatten()
}

/// `[   12.345678] message`, `[Sun Feb 23 16:24:18 2025] message`
fn bracketed(line: &str) -> Option<&str> {
    let (time, message) = line.strip_prefix('[')?.split_once(']')?;
    let time = time.trim();
    let seconds = time
        .split_once('.')
        .is_some_and(|(seconds, rest)| digits(seconds) && digits(rest));
    let words: Vec<&str> = time.split_whitespace().collect();
    let date = matches!(words[..], [day, month, number, clock, year]
        if day.len() == 3 && month.len() == 3 && digits(number) && clock.split(':').all(digits) && digits(year));
    (seconds || date).then(|| message.strip_prefix(' ').unwrap_or(message))
}

/// `2025-02-23T16:24:18,123456+01:00 message` of dmesg. journalctl writes the same with a host.
fn dated(line: &str) -> Option<&str> {
    let (time, message) = line.split_once(' ')?;
    let (date, clock) = time.split_once('T')?;
    let known = date.split('-').count() == 3
        && date.split('-').all(digits)
        && clock.starts_with(|c: char| c.is_ascii_digit());
    let message = match message.split_once(" kernel: ") {
        Some((host, message)) if !host.contains(' ') => message,
        _ => message,
    };
    known.then_some(message)
}

/// `Feb 23 16:24:18 host kernel: message`
fn syslog(line: &str) -> Option<&str> {
    let (before, message) = line.split_once(" kernel: ")?;
    let words: Vec<&str> = before.split_whitespace().collect();
    let known = matches!(words[..], [month, day, clock, _] if month.len() == 3 && digits(day) && clock.split(':').all(digits));
    known.then_some(message)
}

/// `3,339,5140900,-;message`
fn record(line: &str) -> Option<&str> {
    let (head, message) = line.split_once(';')?;
    let fields: Vec<&str> = head.split(',').collect();
    (fields.len() >= 4 && fields[..3].iter().all(|field| digits(field))).then_some(message)
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::message;

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
        ];
        for line in lines {
            assert_eq!(message(line), Some("NVRM: message"), "{line}");
        }
        for line in [
            "",
            "NVRM: message",
            "[soon] NVRM: message",
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
            "2025-02-23T16:24:18 m",
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
            message("2025-02-23T16:24:18 a b kernel: m"),
            Some("a b kernel: m"),
            "the kernel's own words"
        );
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
}
