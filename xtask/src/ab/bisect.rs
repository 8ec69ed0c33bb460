//! Which commit made it slower: what to judge next, and which commits are left. A commit that cannot be
//! judged is passed over and stays a suspect; it builds and runs nothing.

use crate::stats::verdict::Verdict;

/// What a comparison with the good end says of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    Good,
    /// Shown to be slower than the good end.
    Bad,
    /// It does not build or run, or nothing was shown.
    Skipped,
}

impl Judged {
    /// What a verdict against the good end stands for.
    pub(crate) fn of(verdict: Option<Verdict>) -> Judged {
        match verdict {
            Some(Verdict::Slower) => Judged::Bad,
            Some(Verdict::Faster | Verdict::Equivalent) => Judged::Good,
            Some(Verdict::Unresolved | Verdict::Inert | Verdict::Inconclusive) | None => {
                Judged::Skipped
            }
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Judged::Good => "good",
            Judged::Bad => "bad",
            Judged::Skipped => "skipped",
        }
    }
}

/// The commits after the good end, oldest first, and what is known of each.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    known: Vec<Option<Judged>>,
}

impl Search {
    /// A search among `commits` of which the last is bad.
    pub(crate) fn new(commits: usize) -> Search {
        let mut known = vec![None; commits];
        if let Some(last) = known.last_mut() {
            *last = Some(Judged::Bad);
        }
        Search { known }
    }

    /// The commit to judge next: the one nearest to the middle of the suspects; none where all are judged.
    pub(crate) fn next(&self) -> Option<usize> {
        let suspects = self.suspects();
        let middle = (suspects.start + suspects.end - 1) / 2;
        let open = suspects.filter(|index| self.known[*index].is_none());
        open.min_by_key(|index| index.abs_diff(middle))
    }

    pub(crate) fn note(&mut self, commit: usize, judged: Judged) {
        self.known[commit] = Some(judged);
    }

    /// Those of which the first bad one is one: from after the last good commit to the first bad one.
    pub(crate) fn suspects(&self) -> std::ops::Range<usize> {
        let bad = self.known.iter().position(|known| *known == Some(Judged::Bad)).unwrap_or(0);
        let good = self.known[..bad].iter().rposition(|known| *known == Some(Judged::Good));
        good.map_or(0, |good| good + 1)..bad + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a search finds where `truth` says what each commit is, and what it judged.
    fn search(truth: &[Judged]) -> (std::ops::Range<usize>, usize) {
        let mut search = Search::new(truth.len());
        let mut judged = 0;
        while let Some(commit) = search.next() {
            search.note(commit, truth[commit]);
            judged += 1;
        }
        (search.suspects(), judged)
    }

    #[test]
    fn every_first_bad_commit_is_found_in_a_logarithm_of_steps() {
        for commits in 1..40_usize {
            for first in 0..commits {
                let of = |index| if index < first { Judged::Good } else { Judged::Bad };
                let truth: Vec<Judged> = (0..commits).map(of).collect();
                let (suspects, judged) = search(&truth);
                assert_eq!(suspects, first..first + 1);
                assert!(judged <= commits.ilog2() as usize + 1, "{judged} of {commits}");
            }
        }
    }

    #[test]
    fn what_was_skipped_beside_the_first_bad_commit_stays_a_suspect() {
        use Judged::{Bad, Good, Skipped};
        assert_eq!(search(&[Good, Good, Skipped, Skipped, Bad, Bad]).0, 2..5);
        assert_eq!(search(&[Good, Skipped, Good, Bad, Skipped, Bad]).0, 3..4);
        assert_eq!(search(&[Skipped, Skipped, Bad]).0, 0..3);
        assert_eq!(Judged::of(Some(Verdict::Unresolved)), Skipped);
        assert_eq!(Judged::of(None), Skipped);
    }
}
