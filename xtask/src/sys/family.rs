//! A process and the processes of its group that come from it: whether one of them is stopped.
//!
//! The kernel lists the children of a thread. Listing them all takes a read for each thread, so it is done at
//! first, while a program starts its workers, and then now and then; the states of those that are known take a
//! read for each process.

use std::collections::BTreeSet;

/// So many looks after the first list processes anew, and after them one of so many. The first is at a program
/// that has just been started and has no children yet: a cell that is over before the second costs no listing.
const LIST_EVERY: u32 = 10;

/// The leader of a group and its descendants in the group.
#[derive(Debug)]
pub(crate) struct Family {
    leader: i32,
    members: BTreeSet<i32>,
    looks: u32,
}

impl Family {
    pub(crate) fn new(leader: i32) -> Family {
        Family { leader, members: BTreeSet::from([leader]), looks: 0 }
    }

    /// Whether one of them is stopped now, by a signal or a debugger. Where the kernel lists no children it is
    /// the leader alone that is looked at.
    pub(crate) fn is_any_stopped(&mut self) -> bool {
        if lists_anew(self.looks) {
            self.members = find_members(self.leader, read_children);
        }
        self.looks = self.looks.saturating_add(1);
        self.members.iter().any(|&pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            is_stopped_member(&stat, self.leader)
        })
    }
}

fn lists_anew(looks: u32) -> bool {
    looks > 0 && (looks < LIST_EVERY || looks.is_multiple_of(LIST_EVERY))
}

/// A process and all that descend from it. `children` is asked once for each.
fn find_members(leader: i32, mut children: impl FnMut(i32) -> Vec<i32>) -> BTreeSet<i32> {
    let mut members = BTreeSet::from([leader]);
    let mut to_ask = vec![leader];
    while let Some(pid) = to_ask.pop() {
        to_ask.extend(children(pid).into_iter().filter(|&child| members.insert(child)));
    }
    members
}

/// The children of all threads of a process; none where the kernel does not say.
fn read_children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let children = threads.flatten().map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
    });
    children.flatten().collect()
}

/// Whether a line of `/proc/PID/stat` is of a stopped process of this group. A number that another process has
/// by now is not of the group.
fn is_stopped_member(stat: &str, group: i32) -> bool {
    // The name, in parentheses, may hold anything.
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next();
    let _parent = fields.next();
    matches!(state, Some("T" | "t"))
        && fields.next().and_then(|field| field.parse().ok()) == Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_counts_in_its_own_group_alone() {
        for (stat, expected) in [
            ("7 (sh) T 1 42 42 0", true),
            ("7 (a) S (b) t 1 42 42 0", true),
            ("7 (sh) T 1 43 42 0", false),
            ("7 (T) S 1 42 42 0", false),
            ("7 (sh) T", false),
            ("", false),
        ] {
            assert_eq!(is_stopped_member(stat, 42), expected, "{stat}");
        }
    }

    #[test]
    fn every_descendant_is_asked_once() {
        let mut asked = Vec::new();
        let children = |pid| {
            asked.push(pid);
            match pid {
                1 => vec![2, 3],
                2 => vec![4, 1],
                4 => vec![2],
                _ => Vec::new(),
            }
        };
        assert_eq!(find_members(1, children), BTreeSet::from([1, 2, 3, 4]));
        asked.sort_unstable();
        assert_eq!(asked, [1, 2, 3, 4]);
    }

    #[test]
    fn processes_are_listed_at_first_and_then_now_and_then() {
        let listed: Vec<u32> = (0..41).filter(|&look| lists_anew(look)).collect();
        assert_eq!(listed, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40]);
    }
}
