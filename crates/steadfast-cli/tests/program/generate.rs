//! `steadfast generate`: the files that a package of the program contains.

use std::path::Path;

use crate::run::{steadfast, temp_file, temp_path};

#[test]
fn generate_writes_completions_and_man_pages() {
    let folder = temp_path("generated");
    let output = steadfast(&["generate", &folder]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |path: &str| std::fs::read_to_string(Path::new(&folder).join(path)).expect(path);
    for path in ["completions/steadfast.bash", "completions/_steadfast", "completions/steadfast.fish"] {
        let completions = read(path);
        assert!(completions.contains("watch") && completions.contains("wait-for-kind"), "{path}: {completions}");
    }
    let page = read("man/steadfast-watch.1");
    assert!(page.contains("field\\-selector") && page.contains("Examples"), "{page}");
    assert!(read("man/steadfast-notify-check.1").contains("online"));
    // The main page omits `generate`, a command for packagers.
    let main = read("man/steadfast.1");
    assert!(main.contains("steadfast\\-lab(1)") && !main.contains("generate"), "{main}");
}

#[test]
fn unusable_folder_is_named_with_reason() {
    let file = temp_file("generated.txt", "");
    let output = steadfast(&["generate", &file]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&format!("cannot write to {file}: ")), "{error}");
}
