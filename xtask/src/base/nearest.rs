//! "Did you mean": the known name that an unknown one was most likely meant to be.

/// The known name nearest to `name`, without regard to case and to `-` or `_`; `None` if none is
/// close.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    known
        .map(|candidate| (candidate, strsim::jaro_winkler(&plain(name), &plain(candidate))))
        .filter(|(_, closeness)| *closeness >= 0.7)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(candidate, _)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_found_and_what_is_like_none_has_none() {
        let nearest_of = |name| nearest(name, ["max_tokens", "lengths", "Lead"].into_iter());
        assert_eq!(nearest_of("max-tokens"), Some("max_tokens"));
        assert_eq!(nearest_of("LENGHTS"), Some("lengths"));
        assert_eq!(nearest_of("lead"), Some("Lead"));
        assert_eq!(nearest_of("zzz"), None);
        assert_eq!(nearest("a", std::iter::empty()), None);
    }
}
