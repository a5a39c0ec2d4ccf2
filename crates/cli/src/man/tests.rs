use super::*;
use clap::CommandFactory;

fn text(page: &[u8]) -> String {
    String::from_utf8(page.to_vec()).unwrap()
}

#[test]
fn each_command_has_a_page_with_its_options_and_the_lines_of_its_examples() {
    let directory = tempfile::tempdir().unwrap();
    run(&Args { command: Vec::new(), to: Some(directory.path().to_owned()) }, crate::Cli::command()).unwrap();
    let mut root = crate::Cli::command().disable_help_subcommand(true);
    root.build();
    let mut waiting = vec![&root];
    let mut count = 0;
    while let Some(command) = waiting.pop() {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let page = text(&std::fs::read(directory.path().join(format!("{name}.1"))).unwrap());
        let options = command.get_arguments().filter(|option| !option.is_hide_set());
        for option in options.filter_map(clap::Arg::get_long) {
            let escaped = option.replace('-', "\\-");
            assert!(page.contains(&format!("\\-\\-{escaped}")), "{name}.1 has no --{option}");
        }
        waiting.extend(command.get_subcommands());
        count += 1;
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), count);
    let root = text(&std::fs::read(directory.path().join("firstflight.1")).unwrap());
    let examples = root.split(".nf\n").nth(1).unwrap().split(".fi\n").next().unwrap();
    assert!(examples.lines().count() >= 5 && examples.lines().all(|line| line.contains("firstflight ")));
    assert!(root.contains("firstflight\\-gateway(1)"), "{root}");
}

#[test]
fn a_command_that_there_is_not_is_a_mistake() {
    let error = run(&Args { command: vec!["keys".into(), "old".into()], to: None }, crate::Cli::command())
        .unwrap_err();
    assert_eq!(error.to_string(), "keys has no command \"old\"");
}

#[test]
fn a_line_that_begins_with_a_dot_is_text() {
    assert!(after_help("Examples:\n.so /etc/passwd").to_roff().lines().all(|line| !line.starts_with(".so")));
}
