//! Which shared libraries a binary asks for at its start.

/// The libraries that a binary needs before its first line runs, from what `readelf -d` prints.
pub(crate) fn parse_needed(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let after = line.split_once("(NEEDED)")?.1;
        Some(after.split_once('[')?.1.split_once(']')?.0.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Whether a library belongs to CUDA, so that a machine without CUDA lacks it.
pub(crate) fn is_cuda_library(name: &str) -> bool {
    ["libcu", "libnv"].iter().any(|start| name.starts_with(start)) && !name.starts_with("libcurl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_are_read_from_the_dynamic_section() {
        let text = "\nDynamic section at offset 0x1 contains 30 entries:\n  Tag        Type\n \
                    0x0000000000000001 (NEEDED)             Shared library: [libstdc++.so.6]\n \
                    0x0000000000000001 (NEEDED)             Shared library: [libcuda.so.1]\n \
                    0x000000000000000c (INIT)               0x7f000\n";
        let needed = parse_needed(text);
        assert_eq!(needed, ["libstdc++.so.6", "libcuda.so.1"]);
        let of_cuda: Vec<bool> = needed.iter().map(|name| is_cuda_library(name)).collect();
        assert_eq!(of_cuda, [false, true]);
        assert!(is_cuda_library("libnvrtc.so.13") && !is_cuda_library("libcurl.so.4"));
        assert_eq!(parse_needed("no dynamic section"), Vec::<String>::new());
    }
}
