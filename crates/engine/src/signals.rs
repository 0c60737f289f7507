//! SIGINT and SIGTERM as a channel: the first asks the run to finish its step, save and end.

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// Requests by SIGINT and SIGTERM. The listening task ends with the runtime, or when the receiver
/// is dropped and one more signal comes.
///
/// # Errors
/// When the operating system refuses the handlers.
pub fn on_signals() -> std::io::Result<mpsc::Receiver<()>> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (ask, asked) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if ask.send(()).await.is_err() {
                break;
            }
        }
    });
    Ok(asked)
}

/// Nobody can ask.
pub fn never() -> mpsc::Receiver<()> {
    mpsc::channel(1).1
}
