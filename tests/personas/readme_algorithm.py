"""A researcher calls the algorithm once per step, then on a whole log, and saves it, as the README shows."""

import numpy as np

import emphatic

learner = emphatic.TrueOnlineETD(4)
x, x2 = np.array([1.0, 0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
learner.learn(alpha=0.1, I=1.0, lambda_=0.9, phi=x, rho=1.0, R=0.5, phi_next=x2, gamma_next=0.95)
assert learner.predict(x) == 0.1
Phi, R = np.random.default_rng(0).random((1001, 4)), np.ones(1000)
predictions = learner.run(Phi, R, gamma_next=0.9, alpha=0.01, lambda_=0.9)
assert (predictions.shape, learner.steps) == ((1000,), 1001)
assert 8 < predictions[-1] < 10.5, predictions[-1]  # on the way to 1 / (1 − γ)

learner.save("model.safetensors")
again = emphatic.load("model.safetensors")
for other in (learner, again):
    other.run(Phi[:101], R[:100], gamma_next=0.9, alpha=0.01, lambda_=0.9)
assert np.array_equal(learner.theta, again.theta)
assert np.array_equal(learner.e, again.e)
