"""The paper in naive NumPy: loops, one sample at a time, float64. Slow and obvious on purpose.

Written from the equations and METHOD.md, not from the package.
"""

import math

import numpy as np


def gelu(x):
    erf = np.vectorize(math.erf)
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def relu(x):
    return np.maximum(x, 0)


def batch_norm(x, gamma, beta, eps=1e-5):
    """Training-mode batch norm over all axes but 1."""
    out = np.empty_like(x)
    for c in range(x.shape[1]):
        values = x[:, c]
        out[:, c] = (values - values.mean()) / math.sqrt(values.var() + eps) * gamma[c] + beta[c]
    return out


def conv(x, w, bias=None, padding=0):
    """x (b, i, h, w), w (o, i, k, k): cross-correlation with zero padding."""
    b, _, height, width = x.shape
    o, _, k, _ = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    out = np.zeros((b, o, height + 2 * padding - k + 1, width + 2 * padding - k + 1))
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            patch = padded[:, :, i : i + k, j : j + k]
            out[:, :, i, j] = np.tensordot(patch, w, axes=([1, 2, 3], [1, 2, 3]))
    return out if bias is None else out + bias[None, :, None, None]


def transposed_conv(x, w, stride=1, padding=0):
    """x (b, i, h, w), w (i, o, k, k): every input pixel stamps the kernel onto the output."""
    b, _, height, width = x.shape
    _, o, k, _ = w.shape
    out = np.zeros((b, o, (height - 1) * stride + k, (width - 1) * stride + k))
    for y in range(height):
        for z in range(width):
            stamp = np.tensordot(x[:, :, y, z], w, axes=([1], [0]))
            out[:, :, y * stride : y * stride + k, z * stride : z * stride + k] += stamp
    end_y, end_x = out.shape[2] - padding, out.shape[3] - padding
    return out[:, :, padding:end_y, padding:end_x]


def max_pool(x):
    b, c, height, width = x.shape
    out = np.empty((b, c, height // 2, width // 2))
    for i in range(height // 2):
        for j in range(width // 2):
            out[:, :, i, j] = x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max(axis=(2, 3))
    return out


def bilinear(x, size):
    """Up-sampling whose corner pixels stay in the corners (align_corners)."""
    b, c, height, width = x.shape
    out = np.empty((b, c, *size))
    for i in range(size[0]):
        y = i * (height - 1) / (size[0] - 1)
        y0 = min(int(y), height - 2)
        for j in range(size[1]):
            z = j * (width - 1) / (size[1] - 1)
            z0 = min(int(z), width - 2)
            dy, dz = y - y0, z - z0
            out[:, :, i, j] = (
                x[:, :, y0, z0] * (1 - dy) * (1 - dz)
                + x[:, :, y0 + 1, z0] * dy * (1 - dz)
                + x[:, :, y0, z0 + 1] * (1 - dy) * dz
                + x[:, :, y0 + 1, z0 + 1] * dy * dz
            )
    return out


def upward(error, w, size):
    if all(size[i] == 2 * error.shape[2 + i] + 1 for i in range(2)):
        return transposed_conv(error, w, stride=2)
    return transposed_conv(bilinear(error, size), w, padding=1)


def pcm(f_v, f_a, w, total):
    """Algorithm S1. `w` maps the package's parameter names to arrays.

    Returns every f̃_v(t).
    """

    def norm(t, name, x):
        key = f"norms.{t}.{name}"
        return batch_norm(x, w[f"{key}.weight"], w[f"{key}.bias"])

    a = [relu(w[f"a.{i}"])[None] for i in range(3)]
    b = [relu(w[f"b.{i}"])[None] for i in range(3)]
    outputs = []
    for t in range(total):
        if t == 0:  # initialize: levels below the top start as activated predictions
            r3 = f_v
            r2 = gelu(norm(t, "feedback_2", max_pool(conv(r3, w["w_32.weight"], padding=1))))
            r1 = gelu(norm(t, "feedback_1", max_pool(conv(r2, w["w_21.weight"], padding=1))))
            p2, p1 = r2, r1
        else:  # feedback process, Eqs. S10 and S11
            r3 = (1 - b[2]) * r3 + b[2] * f_v
            r3 = gelu(norm(t, "feedback_3", r3) if f"norms.{t}.feedback_3.weight" in w else r3)
            p2 = max_pool(conv(r3, w["w_32.weight"], padding=1))
            r2 = gelu(norm(t, "feedback_2", (1 - b[1]) * r2 + b[1] * p2))
            p1 = max_pool(conv(r2, w["w_21.weight"], padding=1))
            r1 = gelu(norm(t, "feedback_1", (1 - b[0]) * r1 + b[0] * p1))
        # feedforward process, Eqs. S12 and S13
        p0 = gelu(conv(r1, w["w_10.weight"], w["w_10.bias"])).mean(axis=(2, 3))
        e0 = np.broadcast_to((f_a - p0)[:, :, None, None], (*f_a.shape, *r1.shape[2:]))
        r1 = gelu(norm(t, "feedforward_1", r1 + a[0] * transposed_conv(e0, w["w_01.weight"])))
        e1 = r1 - p1
        r2 = gelu(norm(t, "feedforward_2", r2 + a[1] * upward(e1, w["w_12.weight"], r2.shape[2:])))
        e2 = r2 - p2
        r3 = gelu(norm(t, "feedforward_3", r3 + a[2] * upward(e2, w["w_23.weight"], r3.shape[2:])))
        outputs.append(conv(r3, w["output.weight"], w["output.bias"]))
    return outputs


def similarity(f_a, f_v):
    """Eq. 3."""
    b, _, height, width = f_v.shape
    s = np.empty((b, height, width))
    for n in range(b):
        for i in range(height):
            for j in range(width):
                v = f_v[n, :, i, j]
                s[n, i, j] = f_a[n] @ v / (np.linalg.norm(f_a[n]) * np.linalg.norm(v))
    return s


def attended(f_a, f_v):
    """Eqs. 3 to 5: the map and f_av."""
    s = similarity(f_a, f_v)
    out = np.empty(f_v.shape[:2])
    for n in range(len(s)):
        weights = (s[n] - s[n].min()) / (s[n].max() - s[n].min())
        for k in range(f_v.shape[1]):
            out[n, k] = (weights * f_v[n, k]).sum()
    return s, out


def ncs(p, z):
    """Eq. 6, averaged over the batch."""
    cosines = [u @ v / (np.linalg.norm(u) * np.linalg.norm(v)) for u, v in zip(p, z, strict=True)]
    return -float(np.mean(cosines))


def sspl_loss(p1, p2, z1, z2):
    """Eq. 7 (and the value of Eq. 8)."""
    return ncs(p1, z2) / 2 + ncs(p2, z1) / 2


def barlow_twins(u, v, off_diagonal):
    u = (u - u.mean(0)) / np.sqrt(u.var(0) + 1e-5)
    v = (v - v.mean(0)) / np.sqrt(v.var(0) + 1e-5)
    n, d = u.shape
    loss = 0.0
    for i in range(d):
        for j in range(d):
            c = (u[:, i] * v[:, j]).sum() / n
            loss += (1 - c) ** 2 if i == j else off_diagonal * c**2
    return loss


def byol(p1, p2, t1, t2):
    def distance(p, t):
        p = p / np.linalg.norm(p, axis=1, keepdims=True)
        t = t / np.linalg.norm(t, axis=1, keepdims=True)
        return ((p - t) ** 2).sum(axis=1).mean()

    return distance(p1, t2) / 2 + distance(p2, t1) / 2


def whiten(z, ridge):
    centered = z - z.mean(0)
    covariance = centered.T @ centered / (len(z) - 1)
    covariance = (1 - ridge) * covariance + ridge * np.eye(z.shape[1])
    return centered @ np.linalg.inv(np.linalg.cholesky(covariance)).T


def w_mse(z1, z2, ridge):
    w1, w2 = whiten(z1, ridge), whiten(z2, ridge)
    w1 = w1 / np.linalg.norm(w1, axis=1, keepdims=True)
    w2 = w2 / np.linalg.norm(w2, axis=1, keepdims=True)
    return ((w1 - w2) ** 2).sum(axis=1).mean()
