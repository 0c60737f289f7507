//! A chunk of logits: reduced to three numbers per row, or overwritten by its gradient.
//!
//! float32 goes through the fused loops of the CPU or the kernels of CUDA; everything else, and
//! CUDA without NVRTC, through torch operations.

use tch::{Device, Kind, TchError, Tensor};

use super::{HeadMode, HeadOptions, TokenGradients, TokenScores};
use scalerl_torch::cuda::{self, SlopeKind};
use scalerl_torch::fused;

pub(super) struct Rows {
    logits_cv: Tensor,
    targets_c: Tensor,
    inverse_temperature: f64,
    slope_kind: SlopeKind,
}

impl Rows {
    pub(super) fn new(logits_cv: Tensor, targets_c: Tensor, options: &HeadOptions) -> Self {
        // The other modes round the slopes to bf16 for their products anyway.
        let slope_kind = match options.mode {
            HeadMode::Exact => SlopeKind::Float32,
            HeadMode::Split | HeadMode::Bf16 => SlopeKind::BFloat16,
        };
        Self { logits_cv, targets_c, inverse_temperature: 1.0 / options.temperature, slope_kind }
    }

    pub(super) fn into_logits(self) -> Tensor {
        self.logits_cv
    }

    fn is_fusable(&self) -> bool {
        self.logits_cv.device() == Device::Cpu && self.logits_cv.kind() == Kind::Float
    }

    fn has_kernels(&self) -> bool {
        self.logits_cv.kind() == Kind::Float && cuda::is_ready(self.logits_cv.device())
    }

    /// Log-probs of all tokens at the temperature, as new memory.
    fn logprobs(&self) -> Result<Tensor, TchError> {
        let kind = self.logits_cv.kind();
        if (self.inverse_temperature - 1.0).abs() < f64::EPSILON {
            return self.logits_cv.f_log_softmax(-1, kind);
        }
        self.logits_cv.f_mul_scalar(self.inverse_temperature)?.f_log_softmax(-1, kind)
    }

    pub(super) fn score(&mut self) -> Result<TokenScores, TchError> {
        if self.is_fusable() {
            let [logprob, entropy, lse] =
                fused::head(&self.logits_cv, &self.targets_c, self.inverse_temperature)?;
            return Ok(TokenScores { logprob, entropy, lse });
        }
        if self.has_kernels() {
            let [logprob, entropy, lse] =
                cuda::head(&self.logits_cv, &self.targets_c, self.inverse_temperature)?;
            return Ok(TokenScores { logprob, entropy, lse });
        }
        let targets = self.targets_c.f_unsqueeze(1)?;
        let mut logprobs = self.logprobs()?;
        let logprob = logprobs.f_gather(1, &targets, false)?.f_squeeze_dim(1)?;
        let chosen = self.logits_cv.f_gather(1, &targets, false)?.f_squeeze_dim(1)?;
        let lse = chosen.f_mul_scalar(self.inverse_temperature)?.f_sub(&logprob)?;
        let probability = logprobs.f_exp()?;
        let weighted = logprobs.f_mul_(&probability)?;
        let entropy = weighted.f_sum_dim_intlist(-1, false, None)?.f_neg()?;
        Ok(TokenScores { logprob, entropy, lse })
    }

    /// Overwrites the logits by d loss / d logits.
    pub(super) fn differentiate(
        &mut self,
        lse_c: &Tensor,
        entropy_c: &Tensor,
        gradients: &TokenGradients,
    ) -> Result<(), TchError> {
        let kind = self.logits_cv.kind();
        let d_logprob = gradients.logprob.f_to_kind(kind)?.f_contiguous()?;
        if self.is_fusable() {
            let d_entropy = match &gradients.entropy {
                Some(gradient) => gradient.f_to_kind(kind)?.f_contiguous()?,
                None => d_logprob.f_zeros_like()?,
            };
            return fused::head_backward(
                &self.logits_cv,
                &self.targets_c,
                [&lse_c.f_contiguous()?, &entropy_c.f_contiguous()?],
                [&d_logprob, &d_entropy],
                self.inverse_temperature,
            );
        }
        if self.has_kernels() {
            let d_entropy = gradients.entropy.as_ref().map(Tensor::f_contiguous).transpose()?;
            self.logits_cv = cuda::head_backward(
                &self.logits_cv,
                &self.targets_c,
                [&lse_c.f_contiguous()?, &entropy_c.f_contiguous()?],
                &d_logprob,
                d_entropy.as_ref(),
                (self.inverse_temperature, self.slope_kind),
            )?;
            return Ok(());
        }
        let column = |x: &Tensor| x.f_unsqueeze(1);
        let g = column(&d_logprob.f_mul_scalar(self.inverse_temperature)?)?;
        let mut logprobs = self.logits_cv.f_mul_scalar_(self.inverse_temperature)?;
        logprobs = logprobs.f_sub_(&column(&lse_c.f_to_kind(kind)?)?)?;
        let mut d_logits = logprobs.f_exp()?;
        d_logits = match &gradients.entropy {
            Some(gradient) => {
                let h = gradient.f_to_kind(kind)?.f_mul_scalar(self.inverse_temperature)?;
                let mut slope = logprobs.f_add_(&column(&entropy_c.f_to_kind(kind)?)?)?;
                slope = slope.f_mul_(&column(&h)?)?.f_add_(&g)?;
                d_logits.f_mul_(&slope)?.f_neg_()?
            }
            None => d_logits.f_mul_(&g.f_neg()?)?,
        };
        self.logits_cv = d_logits.f_scatter_add_(1, &column(&self.targets_c)?, &g)?;
        Ok(())
    }
}
