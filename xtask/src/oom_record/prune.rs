//! Pruning the OOM record: which lines a rule drops, and the record without them. It asks no git: which
//! commits precede the fix is given.

use crate::sys::git::history::{CommitAge, CommitAges};
use std::collections::BTreeSet;

use chrono::NaiveDate;

use crate::oom_record::{OomRecord, one_line};

/// Which events to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PruneRule {
    Model(String),
    /// Those of a day before this one.
    Before(NaiveDate),
    /// Those whose commit precedes the fix.
    FixedBy(CommitAges),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PrunePlan {
    /// The numbers of the lines to drop.
    pub(crate) dropped: BTreeSet<usize>,
    /// Why lines stay that the user may expect to go.
    pub(crate) notes: Vec<String>,
}

/// The distinct commits that the record names.
pub(crate) fn recorded_commits(record: &OomRecord) -> BTreeSet<String> {
    record.entries().map(|(entry, _)| entry.commit.clone()).collect()
}

/// Decides which lines the rule drops. Malformed lines stay: what they meant to say is unknown.
pub(crate) fn plan_prune(record: &OomRecord, rule: &PruneRule) -> PrunePlan {
    let mut plan = PrunePlan::default();
    for (entry, line) in record.entries() {
        let kept_because = match rule {
            PruneRule::Model(model) => (entry.model != one_line(model)).then_some(None),
            PruneRule::Before(day) => match NaiveDate::parse_from_str(&entry.date, "%Y-%m-%d") {
                Ok(date) if date < *day => None,
                Ok(_) => Some(None),
                Err(_) => Some(Some(format!("`{}` is not a date", entry.date.escape_debug()))),
            },
            PruneRule::FixedBy(ages) => match ages.get(&entry.commit) {
                Some(CommitAge::Before) => None,
                Some(CommitAge::NotBefore) => Some(None),
                Some(CommitAge::Same) => Some(Some("it was recorded at the fix itself".to_owned())),
                Some(CommitAge::Unknown) | None => Some(Some(format!(
                    "commit `{}` is not in this repository",
                    entry.commit.escape_debug()
                ))),
            },
        };
        match kept_because {
            None => {
                plan.dropped.insert(line.number);
            }
            Some(None) => {}
            Some(Some(why)) => plan.notes.push(format!("line {} is kept: {why}", line.number)),
        }
    }
    for line in record.lines().iter().filter(|line| line.entry.is_err()) {
        plan.notes.push(format!("line {} is kept: it is malformed", line.number));
    }
    plan
}

/// The record's bytes without the dropped lines; every other byte stays as it is.
pub(crate) fn drop_lines(record: &[u8], dropped: &BTreeSet<usize>) -> Vec<u8> {
    record
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(index, _)| !dropped.contains(&(index + 1)))
        .flat_map(|(_, line)| line.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::oom_record::parse_record;

    const TEXT: &str = "tiny,512,2026-07-01,aaa,,a.csv\n\
                        tiny,2048,2026-07-05,bbb,,a.csv\n\
                        torn,51\n\
                        \n\
                        big,512,2026-07-09,unknown,,a.csv\n\
                        \"a,b\",512,someday,ccc,,a.csv\n\
                        tiny-2,512,2026-07-04,ddd,,a.csv";

    fn dropped(rule: &PruneRule) -> (Vec<usize>, Vec<String>) {
        let plan = plan_prune(&parse_record(TEXT), rule);
        (plan.dropped.into_iter().collect(), plan.notes)
    }

    #[test]
    fn a_model_is_dropped_by_its_exact_name() {
        let torn = "line 3 is kept: it is malformed".to_owned();
        assert_eq!(dropped(&PruneRule::Model("tiny".into())), (vec![1, 2], vec![torn.clone()]));
        assert_eq!(dropped(&PruneRule::Model("a,b".into())).0, [6]);
        assert_eq!(dropped(&PruneRule::Model("torn".into())), (vec![], vec![torn]));
    }

    #[test]
    fn days_before_the_date_are_dropped_and_the_day_itself_stays() {
        let day = NaiveDate::from_ymd_opt(2026, 7, 5).unwrap();
        let (lines, notes) = dropped(&PruneRule::Before(day));
        assert_eq!(lines, [1, 7]);
        assert_eq!(notes[0], "line 6 is kept: `someday` is not a date");
    }

    #[test]
    fn commits_before_the_fix_are_dropped_and_the_fix_itself_stays() {
        let ages = [
            ("aaa", CommitAge::Before),
            ("bbb", CommitAge::Same),
            ("ccc", CommitAge::NotBefore),
            ("unknown", CommitAge::Unknown),
        ];
        let ages = ages.map(|(commit, age)| (commit.to_owned(), age)).into_iter().collect();
        let (lines, notes) = dropped(&PruneRule::FixedBy(ages));
        assert_eq!(lines, [1]);
        assert_eq!(
            notes,
            [
                "line 2 is kept: it was recorded at the fix itself",
                "line 5 is kept: commit `unknown` is not in this repository",
                "line 7 is kept: commit `ddd` is not in this repository",
                "line 3 is kept: it is malformed",
            ]
        );
    }

    #[test]
    fn every_other_byte_stays() {
        let text = b"a\r\n\xff\n\nlast";
        assert_eq!(drop_lines(text, &BTreeSet::from([1])), b"\xff\n\nlast");
        assert_eq!(drop_lines(text, &BTreeSet::from([2, 4])), b"a\r\n\n");
        assert_eq!(drop_lines(text, &BTreeSet::new()), text);
        assert_eq!(drop_lines(b"", &BTreeSet::from([1])), b"");
    }

    proptest! {
        #[test]
        fn pruning_a_model_unblocks_it_and_leaves_all_other_lines(
            lines in proptest::collection::vec(
                prop_oneof!["(tiny|big|tiny2),[0-9]{1,4},2026-07-0[1-9],abc,,s", "[a-z0-9,\"\r]{0,20}"],
                0..12,
            ),
        ) {
            let text = lines.join("\n");
            let record = parse_record(&text);
            let plan = plan_prune(&record, &PruneRule::Model("tiny".into()));
            let pruned = String::from_utf8(drop_lines(text.as_bytes(), &plan.dropped)).unwrap();
            let after = parse_record(&pruned);
            prop_assert!(after.blocking("tiny", u64::MAX).is_none());
            prop_assert_eq!(record.lines().len() - plan.dropped.len(), after.lines().len());
            prop_assert_eq!(record.warnings().len(), after.warnings().len());
        }
    }
}
