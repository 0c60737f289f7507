//! `[track]`: experiment trackers that get what the journal says. Read by `crates/track`.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

choice! {
    /// One experiment tracker.
    pub enum TrackerChoice {
        /// Event files in the run folder, for `tensorboard --logdir`.
        "tensorboard" TensorBoard,
        /// Weights & Biases, offline: files in the run folder that `wandb sync` uploads.
        "wandb" Wandb,
        /// An MLflow server.
        "mlflow" Mlflow {
            /// Address of the server. Unset: the variable MLFLOW_TRACKING_URI. A password or token
            /// goes into MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN.
            url: Option<String> = None, Rule::NotEmpty;
        },
        /// A Trackio server.
        "trackio" Trackio {
            /// Address of the server. Unset: the variable TRACKIO_SERVER_URL. The token goes into
            /// TRACKIO_WRITE_TOKEN.
            url: Option<String> = None, Rule::NotEmpty;
        },
        /// One line of JSON for each row of metrics, in the run folder.
        "jsonl" Jsonl,
    }
}

section! {
    /// Experiment trackers that get what the journal says, any number at once. None of them can
    /// stop or slow a step.
    pub struct Track {
        /// The trackers.
        to: Vec<TrackerChoice> = Vec::new();
        /// Project (W&B, Trackio) or experiment (MLflow) that the run is put into.
        project: String = "scalerl".into(), Rule::NotEmpty;
    }
}
