"""The scripted model: its protocol as the ``openai`` client sees it, and the harness's own chat loop on it.

No command of a script that misbehaves is run here: those are for boxes.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import scripted_model
import verifiers.v1 as vf
from conftest import REPOSITORY
from scripted_model import (
    GUARD,
    NAIVE,
    SCRIPTS,
    STEPS_DONE,
    ScriptedModel,
    Turn,
    all_output,
    bash,
    serving,
    steps_done,
)
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.runtime import SubprocessConfig
from verifiers.v1.harnesses.utils.core import BASH_TOOL, EDIT_TOOL
from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
from verifiers.v1.runtimes.backends import subprocess as subprocess_runtime
from verifiers.v1.runtimes.runtime import Runtime

TOOLS: list[Any] = [BASH_TOOL, EDIT_TOOL]
MISBEHAVING = [name for name in SCRIPTS if name.split("/")[1] not in
               ("nothing", "threshold", "naive", "loop", "slow")]  # fmt: skip
STARTER = REPOSITORY / "workspace" / "solution" / "solution.py"


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModel]:
    with serving() as model:
        yield model


@pytest.fixture(scope="module")
def client(server: ScriptedModel) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        yield client


def converse(
    client: openai.OpenAI, model: str, output: str = "", turns: int = 20
) -> list[dict[str, Any]]:
    """A conversation to its end, where every tool prints ``output``."""
    messages: list[Any] = [{"role": "user", "content": "Find planets."}]
    for _ in range(turns):
        completion = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
        message = completion.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
    return messages


def calls_of(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, str]]]:
    functions = [call["function"] for m in messages for call in m.get("tool_calls", ())]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


@pytest.mark.parametrize("model", SCRIPTS)
def test_every_script_ends_and_calls_only_offered_tools_with_their_arguments(
    client: openai.OpenAI, model: str
) -> None:
    messages = converse(client, model)
    assert (messages[-1]["role"] == "tool") == (model == "scripted/loop")
    required = {
        tool["function"]["name"]: tool["function"]["parameters"]["required"] for tool in TOOLS
    }
    for name, arguments in calls_of(messages):
        assert sorted(arguments) == sorted(required[name])
        assert all(isinstance(value, str) and value for value in arguments.values())
    ids = [call["id"] for m in messages for call in m.get("tool_calls", ())]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("model", SCRIPTS)
def test_streamed_and_whole_answers_agree(client: openai.OpenAI, model: str) -> None:
    conversation = converse(client, model)
    for end, answer in enumerate(conversation):
        if answer["role"] != "assistant":
            continue
        request: dict[str, Any] = {"model": model, "messages": conversation[:end], "tools": TOOLS}
        whole = client.chat.completions.create(**request)
        with client.chat.completions.stream(
            **request, stream_options={"include_usage": True}
        ) as stream:
            pieces = [e.arguments_delta for e in stream if e.type == "tool_calls.function.arguments.delta"]  # fmt: skip
            streamed = stream.get_final_completion()
        assert streamed.usage == whole.usage
        assert streamed.id == whole.id
        assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason
        assert streamed.choices[0].message.content == whole.choices[0].message.content
        assert [
            (call.id, call.function.name, call.function.arguments)
            for call in streamed.choices[0].message.tool_calls or ()
        ] == [
            (call.id, call.function.name, call.function.arguments)
            for call in whole.choices[0].message.tool_calls or ()
        ]
        assert len(pieces) >= 2 * len(answer.get("tool_calls", ()))


def test_usage_is_streamed_only_when_asked_for_and_grows_with_the_conversation(
    client: openai.OpenAI,
) -> None:
    request: dict[str, Any] = {
        "model": "scripted/nothing",
        "messages": [{"role": "user", "content": "x"}],
    }
    chunks = list(client.chat.completions.create(**request, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    short = client.chat.completions.create(**request).usage
    request["messages"] = [{"role": "user", "content": "x" * 4001}]
    long = client.chat.completions.create(**request).usage
    assert short is not None
    assert long is not None
    assert long.prompt_tokens - short.prompt_tokens == 1000
    assert long.completion_tokens == short.completion_tokens
    assert long.total_tokens == long.prompt_tokens + long.completion_tokens


def test_a_repeated_request_gets_the_same_answer(client: openai.OpenAI) -> None:
    messages = converse(client, "scripted/threshold")[:2]
    answers = {
        client.chat.completions.create(
            model="scripted/threshold", messages=messages, tools=TOOLS
        ).model_dump_json()
        for _ in range(3)
    }
    assert len(answers) == 1


def test_parallel_conversations_do_not_disturb_each_other(client: openai.OpenAI) -> None:
    models = [*SCRIPTS] * 2
    expected = {model: converse(client, model) for model in SCRIPTS}
    with ThreadPoolExecutor(16) as pool:
        for model, messages in zip(
            models, pool.map(lambda model: converse(client, model), models), strict=True
        ):
            assert messages == expected[model]


def test_models_are_listed_without_a_context_window(client: openai.OpenAI) -> None:
    cards = list(client.models.list())
    assert [card.id for card in cards] == list(SCRIPTS)
    assert all(not card.model_extra for card in cards)


def test_errors_are_typed(client: openai.OpenAI, server: ScriptedModel) -> None:
    user: list[Any] = [{"role": "user", "content": "x"}]
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-5", messages=user)
    assert unknown.value.code == "model_not_found"
    assert "scripted/threshold" in str(unknown.value)
    with pytest.raises(openai.BadRequestError) as toolless:
        client.chat.completions.create(model="scripted/loop", messages=user)
    assert toolless.value.code == "tool_not_offered"
    with pytest.raises(openai.NotFoundError) as elsewhere:
        client.responses.create(model="scripted/loop", input="x")
    assert elsewhere.value.code == "not_found"
    with pytest.raises(openai.BadRequestError) as shapeless:
        client.chat.completions.create(model="scripted/loop", messages="x")  # type: ignore[arg-type]
    assert shapeless.value.code == "invalid_messages"
    with pytest.raises(openai.BadRequestError) as broken:
        client.post("/chat/completions", content=b"{", cast_to=object)
    assert broken.value.code == "invalid_json"


def test_requests_are_recorded() -> None:
    with serving() as model, openai.OpenAI(base_url=model.base_url, api_key="any") as client:
        converse(client, "scripted/slow")
        assert [len(request["messages"]) for request in model.requests] == [1, 3]


@pytest.mark.parametrize("model", MISBEHAVING)
def test_what_misbehaves_is_guarded_timed_and_valid_shell(
    client: openai.OpenAI, model: str
) -> None:
    for name, arguments in calls_of(converse(client, model)):
        command = arguments["command"]
        assert name == "bash"
        assert command.startswith(f"{GUARD}; timeout -k 2 20 bash -c ")
        # Parsed only: -n runs nothing.
        parsed = subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False)
        assert parsed.returncode == 0, parsed.stderr


def test_programs_of_the_scripts_are_valid_python() -> None:
    programs = [
        value
        for name, value in vars(scripted_model).items()
        if isinstance(value, str) and re.search(r"^import ", value, re.MULTILINE) and "__" not in name
    ]  # fmt: skip
    assert len(programs) >= 10
    for program in programs:
        ast.parse(program)


def test_misbehaving_commands_refuse_to_run_outside_a_box(tmp_path: Path) -> None:
    inside = subprocess.run(
        ["bash", "-c", f"{GUARD}; echo ran"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (inside.returncode, inside.stdout) == (3, f"{scripted_model.REFUSED}\n")


def test_threshold_changes_one_line_of_the_starter(client: openai.OpenAI) -> None:
    [edit] = [a for name, a in calls_of(converse(client, "scripted/threshold")) if name == "edit"]
    assert STARTER.read_text(encoding="utf-8").count(edit["old_str"]) == 1


def test_final_words_quote_the_score(client: openai.OpenAI) -> None:
    messages = converse(client, "scripted/naive", output="noise\nS = 0.500  (95 %: 0.1 … 0.9)\n")
    assert messages[-1]["content"].endswith("S = 0.500  (95 %: 0.1 … 0.9)")


def test_naive_writes_the_baseline_byte_for_byte(client: openai.OpenAI, tmp_path: Path) -> None:
    (tmp_path / "solution").mkdir()
    [(_, write), _] = calls_of(converse(client, "scripted/naive"))
    subprocess.run(["bash", "-c", write["command"]], cwd=tmp_path, check=True)
    assert (tmp_path / "solution" / "solution.py").read_bytes() == NAIVE.read_bytes()


def test_all_output_reads_requests_and_traces() -> None:
    wire = [
        {"role": "user", "content": "question"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
    ]
    assert all_output(wire) == "one\ntwo"
    assert all_output([vf.UserMessage(content="x"), vf.ToolMessage(tool_call_id="a", content="1")]) == "1"  # fmt: skip


def test_steps_are_counted_across_a_compaction() -> None:
    summary = {"role": "user", "content": "Framing\n\n" + STEPS_DONE.format(12)}
    assert steps_done([summary, {"role": "assistant", "content": "x"}]) == 13


def three_echoes(step: int, messages: scripted_model.Messages) -> Turn:
    if step < 3:
        return Turn("Working.", (bash(f"echo turn {step}; echo 'ä€' >> log"),))
    return Turn("Finished.")


def run_harness(
    server: ScriptedModel, folder: Path, model: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """The chat program that the bash harness puts into a box, as a plain script."""
    program = folder.parent / "chat_program.py"
    program.write_text(CHAT_PROGRAM_SOURCE, encoding="utf-8")
    return subprocess.run(
        [sys.executable, program, f"--base-url={server.base_url}", "--api-key=any", f"--model={model}",
         "--bash", "--edit", "--system-prompt=Be good.", "--prompt=Find planets.", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    shutil.copytree(STARTER.parent, folder / "solution")
    (folder / "TASK.md").write_text("Find planets.\n")
    return folder


def test_harness_program_accepts_a_text_only_answer(workspace: Path) -> None:
    with serving() as model:
        done = run_harness(model, workspace, "scripted/nothing", "--compaction")
        assert (done.returncode, done.stderr) == (0, "")
        [request] = model.requests
    assert request["stream"] is True
    assert request["stream_options"] == {"include_usage": True}
    assert (workspace / "solution" / "solution.py").read_bytes() == STARTER.read_bytes()


def test_harness_program_runs_parallel_calls_and_the_edit_tool(workspace: Path) -> None:
    with serving() as model:
        done = run_harness(model, workspace, "scripted/threshold")
        assert (done.returncode, done.stderr) == (0, "")
        messages = model.requests[-1]["messages"]
    assert len(model.requests) == 4
    assert "Find planets." in all_output(messages)
    assert "Edited solution/solution.py" in all_output(messages)
    source = STARTER.read_text(encoding="utf-8")
    changed = (workspace / "solution" / "solution.py").read_text(encoding="utf-8")
    assert changed == source.replace("MIN_SDE = 14.0", "MIN_SDE = 11.5") != source


@pytest.mark.slow
def test_harness_program_can_compact_the_conversation_at_every_turn(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCRIPTS, "scripted/echoes", three_echoes)
    with serving() as model:
        done = run_harness(
            model, workspace, "scripted/echoes", "--compaction", "--summarize-at-tokens=1"
        )
        assert (done.returncode, done.stderr) == (0, "")
    summaries = [request for request in model.requests if request.get("tool_choice") == "none"]
    assert [all_output(request["messages"]) for request in summaries] == [
        "turn 0\n",
        "turn 1\n",
        "turn 2\n",
    ]
    assert (workspace / "log").read_text(encoding="utf-8") == "ä€\n" * 3


@pytest.fixture
def run_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[ScriptedModel, str, int], vf.Trace]:
    """The framework's agent (bash harness, interception, eval client) on the host, without uv."""

    async def prepare(
        self: Runtime, script: str, env: dict[str, str] | None = None, *, activate: bool = True
    ) -> list[str]:
        await self.write(str(tmp_path / "chat_program.py"), script.encode())
        return [sys.executable, str(tmp_path / "chat_program.py")]

    monkeypatch.setattr(Runtime, "prepare_uv_script", prepare)
    monkeypatch.setattr(subprocess_runtime, "CACHE_DIR", tmp_path)

    def run(server: ScriptedModel, model: str, max_turns: int) -> vf.Trace:
        monkeypatch.setitem(SCRIPTS, "scripted/echoes", three_echoes)
        config = AgentConfig(
            model=model,
            client=EvalClientConfig(base_url=server.base_url),
            runtime=SubprocessConfig(),
            max_turns=max_turns,
        )
        task = vf.Task(vf.TaskData(idx=0, prompt="Find planets."), vf.TaskConfig())
        return asyncio.run(vf.Agent(config).run(task))

    return run


@pytest.mark.slow
def test_the_framework_records_a_scripted_rollout(
    run_agent: Callable[[ScriptedModel, str, int], vf.Trace],
) -> None:
    with serving() as model:
        trace = run_agent(model, "scripted/echoes", 10)
        requests = len(model.requests)
    assert not trace.errors
    assert requests == trace.num_turns == 4
    assert all_output(trace.messages) == "turn 0\n\nturn 1\n\nturn 2\n"
    assert trace.last_reply == "Finished."
    assert trace.usage.completion_tokens > 0


@pytest.mark.slow
def test_the_framework_ends_a_loop_at_its_turn_cap(
    run_agent: Callable[[ScriptedModel, str, int], vf.Trace],
) -> None:
    with serving() as model:
        trace = run_agent(model, "scripted/loop", 5)
        assert len(model.requests) == 5
    assert not trace.errors
    assert (trace.stop_condition, trace.num_turns) == ("max_turns", 5)
    assert all_output(trace.messages).split("\n\n")[:2] == ["turn 1", "turn 2"]


def test_started_as_a_program_it_prints_its_url_first() -> None:
    path = Path(scripted_model.__file__)
    with subprocess.Popen(
        [sys.executable, path, "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with openai.OpenAI(base_url=url, api_key="any") as client:
                assert len(converse(client, "scripted/nothing")) == 2
        finally:
            process.kill()
