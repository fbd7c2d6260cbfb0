//! Every optimizer: its numbers, slots and update op, as a table.

use super::apply::Arg::{Grad, Hyper, Indices, Power, Slot, Step, Var};
use super::apply::{Arg, Rule, Sparse};
use super::sparse::SparseUpdate;
use super::{Optimizer, Rate};
use crate::initializers::{Initializer, constant, ones, zeros};
use crate::variables::Variable;

/// An optimizer's struct, its builder methods, and its rule.
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        $type:ident, $name:literal, new($($arg:ident),*),
        { $($(#[$field_doc:meta])* $field:ident: $field_type:ty = $default:expr,)* }
        |$self:ident| $rule:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $type {
            name: String,
            $($arg: Rate,)*
            $($field: $field_type,)*
        }

        impl $type {
            /// The optimizer with stock's defaults.
            pub fn new($($arg: impl Into<Rate>),*) -> $type {
                $type { name: $name.to_owned(), $($arg: $arg.into(),)* $($field: $default,)* }
            }

            /// The name of its nodes and slots.
            #[must_use]
            pub fn name(mut self, name: &str) -> $type {
                self.name = name.to_owned();
                self
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                pub fn $field(mut self, value: impl Into<$field_type>) -> $type {
                    self.$field = value.into();
                    self
                }
            )*
        }

        impl Optimizer for $type {
            fn rule(&self) -> Rule {
                let $self = self;
                $rule
            }
        }
    };
}

fn rule(name: &str, op: &'static str, dense: &'static [Arg], sparse: Sparse) -> Rule {
    Rule {
        name: name.to_owned(),
        op,
        hyper: Vec::new(),
        slots: Vec::new(),
        powers: Vec::new(),
        dense,
        sparse,
        attrs: Vec::new(),
        step: None,
    }
}

impl Rule {
    fn hyper<const N: usize>(mut self, hyper: [(&'static str, &Rate); N]) -> Rule {
        self.hyper = hyper.into_iter().map(|(name, rate)| (name, rate.clone())).collect();
        self
    }

    fn slots<const N: usize>(mut self, slots: [Initializer; N]) -> Rule {
        self.slots = slots.into();
        self
    }

    fn powers<const N: usize>(mut self, powers: [(&'static str, usize); N]) -> Rule {
        self.powers = powers.into();
        self
    }

    fn attr(mut self, name: &'static str, value: bool) -> Rule {
        self.attrs.push((name, value));
        self
    }
}

optimizer! {
    /// Steps against the gradient.
    GradientDescent, "GradientDescent", new(learning_rate), {}
    |o| rule(&o.name, "GradientDescent", &[Var, Hyper(0), Grad], Sparse::Nodes(SparseUpdate::GradientDescent))
        .hyper([("learning_rate", &o.learning_rate)])
}

optimizer! {
    /// Steps with momentum, plain or Nesterov's.
    Momentum, "Momentum", new(learning_rate, momentum), {
        /// Looks ahead, as Nesterov's method does.
        nesterov: bool = false,
    }
    |o| rule(
        &o.name,
        "Momentum",
        &[Var, Slot(0), Hyper(0), Grad, Hyper(1)],
        Sparse::Op(&[Var, Slot(0), Hyper(0), Grad, Indices, Hyper(1)]),
    )
    .hyper([("learning_rate", &o.learning_rate), ("momentum", &o.momentum)])
    .slots([zeros()])
    .attr("use_nesterov", o.nesterov)
}

optimizer! {
    /// Steps that shrink with the sum of squares of past gradients.
    Adagrad, "Adagrad", new(learning_rate), {
        /// What the sums of squares start with.
        initial_accumulator: f64 = 0.1,
    }
    |o| rule(
        &o.name,
        "Adagrad",
        &[Var, Slot(0), Hyper(0), Grad],
        Sparse::Op(&[Var, Slot(0), Hyper(0), Grad, Indices]),
    )
    .hyper([("learning_rate", &o.learning_rate)])
    .slots([constant(o.initial_accumulator)])
}

optimizer! {
    /// Adagrad with a number that keeps divisions from being by zero.
    AdagradV2, "Adagrad", new(learning_rate), {
        /// What the sums of squares start with.
        initial_accumulator: f64 = 0.1,
        /// Keeps divisions from being by zero.
        epsilon: Rate = Rate::Number(1e-7),
    }
    |o| rule(
        &o.name,
        "AdagradV2",
        &[Var, Slot(0), Hyper(0), Hyper(1), Grad],
        Sparse::Op(&[Var, Slot(0), Hyper(0), Hyper(1), Grad, Indices]),
    )
    .hyper([("learning_rate", &o.learning_rate), ("epsilon", &o.epsilon)])
    .slots([constant(o.initial_accumulator)])
}

/// Adagrad with dual averaging, for linear models with regularization.
#[derive(Clone, Debug)]
pub struct AdagradDa {
    name: String,
    learning_rate: Rate,
    step: Variable,
    initial: f64,
    l1: Rate,
    l2: Rate,
}

impl AdagradDa {
    /// The optimizer with stock's defaults; it looks at the global step.
    pub fn new(learning_rate: impl Into<Rate>, global_step: &Variable) -> AdagradDa {
        AdagradDa {
            name: "AdagradDA".to_owned(),
            learning_rate: learning_rate.into(),
            step: global_step.clone(),
            initial: 0.1,
            l1: Rate::Number(0.0),
            l2: Rate::Number(0.0),
        }
    }

    /// The name of its nodes and slots.
    #[must_use]
    pub fn name(mut self, name: &str) -> AdagradDa {
        self.name = name.to_owned();
        self
    }

    /// How strongly weights are pulled to zero.
    #[must_use]
    pub fn l1(mut self, strength: impl Into<Rate>) -> AdagradDa {
        self.l1 = strength.into();
        self
    }

    /// How strongly squares of weights are punished.
    #[must_use]
    pub fn l2(mut self, strength: impl Into<Rate>) -> AdagradDa {
        self.l2 = strength.into();
        self
    }

    /// What the sums of squares start with.
    #[must_use]
    pub fn initial_accumulator(mut self, value: f64) -> AdagradDa {
        self.initial = value;
        self
    }
}

impl Optimizer for AdagradDa {
    fn rule(&self) -> Rule {
        let rule = rule(
            &self.name,
            "AdagradDA",
            &[Var, Slot(0), Slot(1), Grad, Hyper(0), Hyper(1), Hyper(2), Step],
            Sparse::Op(&[Var, Slot(0), Slot(1), Grad, Indices, Hyper(0), Hyper(1), Hyper(2), Step]),
        );
        let rule = rule
            .hyper([("learning_rate", &self.learning_rate), ("l1", &self.l1), ("l2", &self.l2)])
            .slots([zeros(), constant(self.initial)]);
        Rule { step: Some(self.step.clone()), ..rule }
    }
}

optimizer! {
    /// Steps scaled by the ratio of recent updates to recent gradients.
    Adadelta, "Adadelta", new(learning_rate), {
        /// How slowly averages forget.
        rho: Rate = Rate::Number(0.95),
        /// Keeps divisions from being by zero.
        epsilon: Rate = Rate::Number(1e-8),
    }
    |o| rule(
        &o.name,
        "Adadelta",
        &[Var, Slot(0), Slot(1), Hyper(0), Hyper(1), Hyper(2), Grad],
        Sparse::Op(&[Var, Slot(0), Slot(1), Hyper(0), Hyper(1), Hyper(2), Grad, Indices]),
    )
    .hyper([("lr", &o.learning_rate), ("rho", &o.rho), ("epsilon", &o.epsilon)])
    .slots([zeros(), zeros()])
}

optimizer! {
    /// Steps along averages of the gradient, scaled by averages of its square.
    Adam, "Adam", new(learning_rate), {
        /// How slowly the average of gradients forgets.
        beta1: Rate = Rate::Number(0.9),
        /// How slowly the average of squares forgets.
        beta2: Rate = Rate::Number(0.999),
        /// Keeps divisions from being by zero.
        epsilon: Rate = Rate::Number(1e-8),
        /// Scales by the largest average of squares so far.
        amsgrad: bool = false,
    }
    |o| {
        let hyper = [("learning_rate", &o.learning_rate), ("beta1", &o.beta1), ("beta2", &o.beta2), ("epsilon", &o.epsilon)];
        let powers = [("beta1_power", 1), ("beta2_power", 2)];
        let sparse = Sparse::Nodes(SparseUpdate::Adam { amsgrad: o.amsgrad });
        if o.amsgrad {
            let dense =
                &[Var, Slot(0), Slot(1), Slot(2), Power(0), Power(1), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad];
            rule(&o.name, "AdamWithAmsgrad", dense, sparse).hyper(hyper).powers(powers).slots([zeros(), zeros(), zeros()])
        } else {
            let dense = &[Var, Slot(0), Slot(1), Power(0), Power(1), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad];
            rule(&o.name, "Adam", dense, sparse).hyper(hyper).powers(powers).slots([zeros(), zeros()])
        }
    }
}

optimizer! {
    /// Adam with the largest gradient in place of the average of squares.
    AdaMax, "AdaMax", new(learning_rate), {
        /// How slowly the average of gradients forgets.
        beta1: Rate = Rate::Number(0.9),
        /// How slowly the largest gradient is forgotten.
        beta2: Rate = Rate::Number(0.999),
        /// Keeps divisions from being by zero.
        epsilon: Rate = Rate::Number(1e-8),
    }
    |o| rule(
        &o.name,
        "AdaMax",
        &[Var, Slot(0), Slot(1), Power(0), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad],
        Sparse::Nodes(SparseUpdate::AdaMax),
    )
    .hyper([("learning_rate", &o.learning_rate), ("beta1", &o.beta1), ("beta2", &o.beta2), ("epsilon", &o.epsilon)])
    .powers([("beta1_power", 1)])
    .slots([zeros(), zeros()])
}

optimizer! {
    /// Steps scaled by an average of the gradient's square, with momentum.
    RmsProp, "RMSProp", new(learning_rate), {
        /// How slowly the average forgets.
        decay: Rate = Rate::Number(0.9),
        /// How much of the last step remains.
        momentum: Rate = Rate::Number(0.0),
        /// Keeps divisions from being by zero.
        epsilon: Rate = Rate::Number(1e-10),
        /// Scales by the variance instead of the square.
        centered: bool = false,
    }
    |o| {
        let hyper = [("learning_rate", &o.learning_rate), ("decay", &o.decay), ("momentum", &o.momentum), ("epsilon", &o.epsilon)];
        if o.centered {
            rule(
                &o.name,
                "CenteredRMSProp",
                &[Var, Slot(1), Slot(0), Slot(2), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad],
                Sparse::Op(&[Var, Slot(1), Slot(0), Slot(2), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad, Indices]),
            )
            .hyper(hyper)
            .slots([ones(), zeros(), zeros()])
        } else {
            rule(
                &o.name,
                "RMSProp",
                &[Var, Slot(0), Slot(1), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad],
                Sparse::Op(&[Var, Slot(0), Slot(1), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad, Indices]),
            )
            .hyper(hyper)
            .slots([ones(), zeros()])
        }
    }
}

optimizer! {
    /// Follow the regularized leader, for linear models.
    Ftrl, "Ftrl", new(learning_rate), {
        /// How the learning rate falls; negative.
        learning_rate_power: Rate = Rate::Number(-0.5),
        /// What the sums of squares start with.
        initial_accumulator: f64 = 0.1,
        /// How strongly weights are pulled to zero.
        l1: Rate = Rate::Number(0.0),
        /// How strongly squares of weights are punished.
        l2: Rate = Rate::Number(0.0),
        /// How strongly squares of weights are punished without a change of gradients' scale; above zero, the op is
        /// the second version.
        l2_shrinkage: f64 = 0.0,
    }
    |o| {
        let shrinkage = Rate::Number(o.l2_shrinkage);
        let hyper = [
            ("learning_rate", &o.learning_rate),
            ("l1_regularization_strength", &o.l1),
            ("l2_regularization_strength", &o.l2),
            ("learning_rate_power", &o.learning_rate_power),
            ("l2_shrinkage_regularization_strength", &shrinkage),
        ];
        let slots = [constant(o.initial_accumulator), zeros()];
        if o.l2_shrinkage > 0.0 {
            rule(
                &o.name,
                "FtrlV2",
                &[Var, Slot(0), Slot(1), Grad, Hyper(0), Hyper(1), Hyper(2), Hyper(4), Hyper(3)],
                Sparse::Op(&[Var, Slot(0), Slot(1), Grad, Indices, Hyper(0), Hyper(1), Hyper(2), Hyper(4), Hyper(3)]),
            )
            .hyper(hyper)
            .slots(slots)
        } else {
            rule(
                &o.name,
                "Ftrl",
                &[Var, Slot(0), Slot(1), Grad, Hyper(0), Hyper(1), Hyper(2), Hyper(3)],
                Sparse::Op(&[Var, Slot(0), Slot(1), Grad, Indices, Hyper(0), Hyper(1), Hyper(2), Hyper(3)]),
            )
            .hyper(hyper)
            .slots(slots)
        }
    }
}

optimizer! {
    /// Gradient descent with regularization after each step.
    ProximalGradientDescent, "ProximalGradientDescent", new(learning_rate), {
        /// How strongly weights are pulled to zero.
        l1: Rate = Rate::Number(0.0),
        /// How strongly squares of weights are punished.
        l2: Rate = Rate::Number(0.0),
    }
    |o| rule(
        &o.name,
        "ProximalGradientDescent",
        &[Var, Hyper(0), Hyper(1), Hyper(2), Grad],
        Sparse::Op(&[Var, Hyper(0), Hyper(1), Hyper(2), Grad, Indices]),
    )
    .hyper([
        ("learning_rate", &o.learning_rate),
        ("l1_regularization_strength", &o.l1),
        ("l2_regularization_strength", &o.l2),
    ])
}

optimizer! {
    /// Adagrad with regularization after each step.
    ProximalAdagrad, "ProximalAdagrad", new(learning_rate), {
        /// What the sums of squares start with.
        initial_accumulator: f64 = 0.1,
        /// How strongly weights are pulled to zero.
        l1: Rate = Rate::Number(0.0),
        /// How strongly squares of weights are punished.
        l2: Rate = Rate::Number(0.0),
    }
    |o| rule(
        &o.name,
        "ProximalAdagrad",
        &[Var, Slot(0), Hyper(0), Hyper(1), Hyper(2), Grad],
        Sparse::Op(&[Var, Slot(0), Hyper(0), Hyper(1), Hyper(2), Grad, Indices]),
    )
    .hyper([
        ("learning_rate", &o.learning_rate),
        ("l1_regularization_strength", &o.l1),
        ("l2_regularization_strength", &o.l2),
    ])
    .slots([constant(o.initial_accumulator)])
}

optimizer! {
    /// Steps that are longer where the gradient agrees with its average.
    AddSign, "AddSign", new(learning_rate), {
        /// The scale of a step where they neither agree nor differ.
        alpha: Rate = Rate::Number(1.0),
        /// How much agreement counts.
        sign_decay: Rate = Rate::Number(1.0),
        /// How slowly the average forgets.
        beta: Rate = Rate::Number(0.9),
    }
    |o| rule(
        &o.name,
        "AddSign",
        &[Var, Slot(0), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad],
        Sparse::Nodes(SparseUpdate::AddSign),
    )
    .hyper([("learning_rate", &o.learning_rate), ("alpha", &o.alpha), ("sign_decay", &o.sign_decay), ("beta", &o.beta)])
    .slots([zeros()])
}

optimizer! {
    /// Steps that are longer by a power where the gradient agrees with its average.
    PowerSign, "PowerSign", new(learning_rate), {
        /// The logarithm of the power's base; one for the base e.
        log_base: Rate = Rate::Number(1.0),
        /// How much agreement counts.
        sign_decay: Rate = Rate::Number(1.0),
        /// How slowly the average forgets.
        beta: Rate = Rate::Number(0.9),
    }
    |o| rule(
        &o.name,
        "PowerSign",
        &[Var, Slot(0), Hyper(0), Hyper(1), Hyper(2), Hyper(3), Grad],
        Sparse::Nodes(SparseUpdate::PowerSign),
    )
    .hyper([("learning_rate", &o.learning_rate), ("log_base", &o.log_base), ("sign_decay", &o.sign_decay), ("beta", &o.beta)])
    .slots([zeros()])
}
