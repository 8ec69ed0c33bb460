//! How many of something, in words.

/// `1 launch`, `3 launches`.
pub(crate) fn render_count(count: usize, noun: &str) -> String {
    let ending = match count {
        1 => "",
        _ if ["ch", "s", "x"].iter().any(|end| noun.ends_with(end)) => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::render_count;

    #[test]
    fn one_is_singular_and_none_is_not() {
        assert_eq!(render_count(1, "launch"), "1 launch");
        assert_eq!(render_count(0, "error"), "0 errors");
        assert_eq!(render_count(11, "launch"), "11 launches");
    }
}
