"""The formula against numbers worked out by hand, and the table of peaks."""

import csv
import unittest

from support import PACKAGE

from lockstep import flops


class Formula(unittest.TestCase):
    LLAMA_7B = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
    }  # fmt: skip

    def test_a_gated_transformer(self):
        # 32 layers of 4 attention matrices of 4096^2 and 3 of 4096 x 11008, and the head of 4096 x 32000
        self.assertEqual(flops.parameters(self.LLAMA_7B), 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000)

    def test_attention_counts_half_where_it_is_causal_and_nothing_without_a_sequence(self):
        n = flops.parameters(self.LLAMA_7B)
        self.assertEqual(flops.flops_per_token(self.LLAMA_7B), 6 * n)
        self.assertEqual(flops.flops_per_token(self.LLAMA_7B, 2048) - 6 * n, 6 * 32 * 4096 * 2048)
        self.assertEqual(flops.flops_per_token(self.LLAMA_7B, 2048, causal=False) - 6 * n, 12 * 32 * 4096 * 2048)

    def test_gpt2_by_its_own_names(self):
        gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
        self.assertEqual(flops.parameters(gpt2), 12 * (4 * 768**2 + 2 * 768 * 3072) + 768 * 50257)

    def test_grouped_queries_and_a_head_size_of_its_own(self):
        model = {"hidden_size": 1024, "layers": 2, "heads": 16, "kv_heads": 4, "head_size": 128, "ffn_size": 4096}
        self.assertEqual(flops.parameters(model), 2 * (1024 * 128 * (32 + 8) + 2 * 1024 * 4096))

    def test_of_a_mixture_only_the_experts_a_token_visits(self):
        model = {
            "model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
            "intermediate_size": 256, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 0,
        }  # fmt: skip
        self.assertEqual(flops.parameters(model), 3 * (4 * 64**2 + 2 * 3 * 64 * 256 + 64 * 8))

    def test_a_configuration_object_is_as_good_as_a_dictionary(self):
        class Config:
            pass

        config = Config()
        config.__dict__.update(self.LLAMA_7B)
        self.assertEqual(flops.parameters(config), flops.parameters(self.LLAMA_7B))

    def test_what_the_formula_does_not_cover_is_said_not_guessed(self):
        for model in ({"hidden_size": 8}, {}, {**self.LLAMA_7B, "is_encoder_decoder": True}):
            with self.assertRaises(flops.NotKnown):
                flops.parameters(model)


class Peaks(unittest.TestCase):
    def test_names_as_torch_tells_them(self):
        for name, dtype, wanted in (
            ("NVIDIA H100 80GB HBM3", "bf16", 989.4e12),
            ("NVIDIA H100 PCIe", "torch.bfloat16", 756.5e12),
            ("NVIDIA H100 NVL", "bf16", 835e12),
            ("NVIDIA H200", "bf16", 989.4e12),
            ("NVIDIA H200 NVL", "fp16", 836e12),
            ("NVIDIA H20", "bf16", 148e12),
            ("NVIDIA A100-SXM4-80GB", "tf32", 156e12),
            ("Tesla V100-SXM2-16GB", "fp16", 125e12),
            ("NVIDIA GB200", "fp8", 5000e12),
            ("NVIDIA B200", "bf16", 2250e12),
            ("NVIDIA L40S", "fp8", 733e12),
            ("AMD Instinct MI300X", "bf16", 1307.4e12),
        ):
            self.assertEqual(flops.peak(name, dtype), wanted, name)

    def test_unknown_rather_than_a_guess(self):
        for name, dtype in (
            ("NVIDIA H100", "bf16"), ("NVIDIA GH200 480GB", "bf16"), ("NVIDIA B300", "bf16"), ("NVIDIA A100-SXM4-80GB", "fp8"),
            ("NVIDIA GeForce RTX 4090", "bf16"), ("", "bf16"), ("Tesla V100-PCIE-16GB", "fp16"),
        ):  # fmt: skip
            self.assertIsNone(flops.peak(name, dtype), name)

    def test_every_row_names_its_source(self):
        with open(PACKAGE / "lockstep" / "peak_flops.csv") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        for row in rows:
            self.assertTrue(row["source"] and row["pattern"], row)
            self.assertTrue(row["flops"] == "unknown" or float(row["flops"]) > 1e12, row)


if __name__ == "__main__":
    unittest.main()
