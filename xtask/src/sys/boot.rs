//! Which start of the machine this is, so that a journal can tell a lost host from a killed harness.

use crate::base::hash::sha256_hex;

/// Boot times of one start differ by this much where the clock was set in between.
const CLOCK_SLACK_S: u64 = 60;

/// Tells this start of the machine from every other one without naming the machine: a hash of the
/// kernel's boot id, else `time:SECONDS`, the boot time since the epoch. Empty where the system
/// gives neither.
pub(crate) fn read_boot_id() -> String {
    let id = read("/proc/sys/kernel/random/boot_id");
    let btime = || read("/proc/stat").or_else(read_sysctl_boottime);
    render_boot_id(id.as_deref(), btime)
}

/// Whether the machine was started anew between the journal line that holds `then` and `now`.
///
/// An unknown boot is never another one: without it nobody can say that the host was lost.
pub(crate) fn is_another_boot(then: &str, now: &str) -> bool {
    let time = |id: &str| id.strip_prefix("time:")?.parse::<u64>().ok();
    match (time(then), time(now)) {
        (Some(then), Some(now)) => then.abs_diff(now) > CLOCK_SLACK_S,
        _ => !then.is_empty() && !now.is_empty() && then != now,
    }
}

fn render_boot_id(id: Option<&str>, boot_time: impl FnOnce() -> Option<String>) -> String {
    match id.map(str::trim).filter(|id| !id.is_empty()) {
        Some(id) => sha256_hex(id.as_bytes())[..12].to_owned(),
        None => boot_time()
            .and_then(|text| parse_boot_time_s(&text))
            .map_or_else(String::new, |seconds| format!("time:{seconds}")),
    }
}

/// The boot time in `/proc/stat` (`btime 1796092776`) or in `sysctl kern.boottime`
/// (`{ sec = 1796092776, usec = 0 } …`).
fn parse_boot_time_s(text: &str) -> Option<u64> {
    let rest = (text.lines().find_map(|line| line.strip_prefix("btime ")))
        .or_else(|| text.split_once("sec = ").map(|(_, rest)| rest))?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn read_sysctl_boottime() -> Option<String> {
    super::host::output_of("sysctl", &["-n", "kern.boottime"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_named_by_its_id_else_by_its_time() {
        let none = || None;
        let id = render_boot_id(Some("1d1e0c5a-42e6\n"), none);
        assert_eq!(id, sha256_hex(b"1d1e0c5a-42e6")[..12]);
        let stat = || Some("cpu 1 2\nintr 5\nbtime 1796092776\nprocesses 9\n".to_owned());
        assert_eq!(render_boot_id(Some(" \n"), stat), "time:1796092776");
        let mac = || Some("{ sec = 1796092776, usec = 12 } Wed Dec  1 2026\n".to_owned());
        assert_eq!(render_boot_id(None, mac), "time:1796092776");
        assert_eq!(render_boot_id(None, none), "");
        assert_eq!(render_boot_id(None, || Some("cpu 1\n".to_owned())), "");
    }

    #[test]
    fn this_machine_says_which_boot_it_is() {
        let boot = read_boot_id();
        assert!(!boot.is_empty());
        assert!(!is_another_boot(&boot, &read_boot_id()));
    }

    #[test]
    fn another_boot_is_another_id_or_a_time_beyond_what_setting_the_clock_explains() {
        assert!(is_another_boot("aa", "bb"));
        assert!(!is_another_boot("aa", "aa"));
        assert!(!is_another_boot("", "bb"), "unknown then");
        assert!(!is_another_boot("aa", ""), "unknown now");
        assert!(!is_another_boot("time:1000", "time:1001"));
        assert!(is_another_boot("time:1000", "time:1100"));
        assert!(is_another_boot("aa", "time:1000"));
    }
}
