//! What a report can be written as: the ending of the output says.

use std::path::Path;

/// A kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// One picture.
    Svg,
}

impl Format {
    const ALL: [Format; 1] = [Format::Svg];

    fn ending(self) -> &'static str {
        match self {
            Format::Svg => "svg",
        }
    }

    /// The format that a path asks for.
    ///
    /// # Errors
    /// An ending that is not known, with the known ones.
    pub(super) fn of_path(path: &Path) -> Result<Format, String> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        Format::ALL.into_iter().find(|format| format.ending() == ending).ok_or_else(|| {
            let known: Vec<_> =
                Format::ALL.into_iter().map(|format| format!("`.{}`", format.ending())).collect();
            format!(
                "cannot tell from `{}` what to write; the known endings are {}",
                path.display(),
                known.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_decides_and_an_unknown_one_names_the_known() {
        assert_eq!(Format::of_path(Path::new("docs/sweep.svg")), Ok(Format::Svg));
        for path in ["a.html", "a.csv", "a", "svg", ".svg"] {
            assert_eq!(
                Format::of_path(Path::new(path)).unwrap_err(),
                format!("cannot tell from `{path}` what to write; the known endings are `.svg`")
            );
        }
    }
}
