//! Writes the cell report: whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use formats::cell_report::CellReport;

/// Writes by way of a temporary file beside `path`, synced before it takes the name.
pub(super) fn write(path: &Path, report: &CellReport) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let mut json = serde_json::to_vec_pretty(report)?;
    json.push(b'\n');
    let result = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(&json)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
        return result;
    }
    // The name itself is durable once the folder is; a file system that cannot do that is no error.
    let folder = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        let _ = folder.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_replaces_an_older_one_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cell.json");
        fs::write(&path, "older").unwrap();
        let report = CellReport { schema: 1, ..CellReport::default() };
        write(&path, &report).unwrap();
        assert_eq!(
            serde_json::from_slice::<CellReport>(&fs::read(&path).unwrap()).unwrap(),
            report
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("no/cell.json"), &CellReport::default()).unwrap_err();
    }
}
