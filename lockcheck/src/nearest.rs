//! "Did you mean": the known name that an unknown one was most likely meant to be.

/// The known name nearest to `name`; `None` if none is close.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    known
        .map(|candidate| (candidate, strsim::jaro_winkler(&plain(name), &plain(candidate))))
        .filter(|(_, closeness)| *closeness >= 0.7)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(candidate, _)| candidate)
}

/// ``; did you mean `X`?``, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}
