"""What a sharded run saves is a model folder that transformers opens as it is."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedConfig

from ckptlab.checkpoint import save
from ckptlab.ranks import World
from ckptlab.resume import TrainState

CONFIGS: list[PreTrainedConfig] = [
    LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    ),
    GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=16, tie_word_embeddings=True),
]


def save_sharded(run: Path, config: Path) -> None:
    """Make the model of a configuration, shard it, and save it into files of at most 20 kB."""
    model = made(config)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    state = TrainState(model=model, optimizer=torch.optim.AdamW(model.parameters()), model_files={"config.json": config})
    save(run, 1, state.contents(), max_file_bytes=20_000)


def made(config: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config.parent))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_transformers_opens_what_two_ranks_saved_in_several_files(config: PreTrainedConfig, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    with World(2) as world:
        world.run(save_sharded, tmp_path / "run", tmp_path / "config.json")
    folder = tmp_path / "run/step-00000001/model"
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) > 3
    assert all(sum(t.numel() * t.element_size() for t in load_file(file).values()) <= 20_000 for file in files)
    opened, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    expected = made(tmp_path / "config.json").state_dict()
    found = opened.state_dict()
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
