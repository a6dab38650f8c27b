use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a command's supervisor needs nothing of the gateway.
    if std::env::args_os().nth(1).is_some_and(|word| word == daoyou::guard::EXEC_WORD) {
        return daoyou::guard::exec_main();
    }
    ExitCode::SUCCESS
}
