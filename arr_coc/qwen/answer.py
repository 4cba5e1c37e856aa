"""Answer: one answer on its way, its stages in order, streamed as snapshots, each measured.

The host prepares and encodes, the Realizer decides; nothing here knows how tokens are chosen or encoded.
"""

import functools
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from transformers import Cache, LogitsProcessorList, StoppingCriteriaList

from arr_coc.balancing import lexical_tier
from arr_coc.components import context_for
from arr_coc.config import Config, glance_tokens_each
from arr_coc.qwen import paying
from arr_coc.qwen.deciding import decided, views_of
from arr_coc.qwen.encoding import TokenSet, joined
from arr_coc.qwen.host import QwenHost
from arr_coc.qwen.inputs import Ask, Views
from arr_coc.qwen.layers import CACHE
from arr_coc.qwen.listening import FirstEntropy, Stop, Streamer
from arr_coc.qwen.memory import kv_bytes_per_token, peak_memory, reset_peak_memory
from arr_coc.qwen.preparing import Given
from arr_coc.qwen.rounds import Timed, spend
from arr_coc.realizing import Realization, stage
from arr_coc.temporal import Moments, check_config

# As `answer_batch` decodes, whatever the checkpoint proposes.
GREEDY = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
GREEDY |= {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "use_cache": True, "num_beams": 1}
STAGES = ("preprocess", "glance", "relevance", "encode", "prefill", "decode")
STREAM_TIMEOUT_S = 600.0
# Between two looks at whether somebody who waits for the model has left; how long a worker's end is waited
# for, which comes with the stage that it is in.
TURN_S, JOIN_TIMEOUT_S = 0.1, 60.0


@dataclass(frozen=True)
class Measures:
    """What one answer cost.

    Attributes:
        stages: seconds by stage: preprocess, glance, relevance, encode, prefill, decode. Stages that
            did not run are 0. Prefill ends with the first token.
        time_to_first_token: seconds from the call to the first token, every stage counted.
        decode_tokens_per_second: after the first token; 0.0 where only one token came.
        new_tokens: tokens generated, the end token included.
        visual_tokens: visual tokens the language model held.
        visual_tokens_full: the image's native visual tokens.
        kv_cache_bytes: keys and values of the prompt, over all layers.
        peak_memory_bytes: peak over the call; `peak_memory_kind` says of what.
        first_token_entropy: of the first token's distribution, in nats: how unsure the model was.
        ended: why it stopped: "end" token, "length" (`max_new_tokens`) or "time" (the deadline).
        in_full: why `when="auto"` answered in full, in a sentence; None where it did not.
    """

    stages: dict[str, float]
    time_to_first_token: float
    decode_tokens_per_second: float
    new_tokens: int
    visual_tokens: int
    visual_tokens_full: int
    kv_cache_bytes: int
    peak_memory_bytes: int
    peak_memory_kind: str
    first_token_entropy: float | None = None
    ended: str = "end"
    in_full: str | None = None


@dataclass(frozen=True)
class Answer:
    """A snapshot of an answer: text so far, the stage it is in, and at the end what it cost."""

    text: str
    stage: str
    done: bool = False
    measures: Measures | None = None
    realization: Realization | Moments | None = field(default=None, repr=False)


def without_state(realization: Realization | Moments) -> Realization | Moments:
    """The same realization without the host's cache, so that keeping it is cheap."""
    if isinstance(realization, Moments):
        return replace(realization, views=tuple(map(without_state, realization.views)))
    if realization.glance is None:
        return realization
    return replace(realization, glance=replace(realization.glance, state=None))


class Run:
    """One answer on its way. For snapshots the work runs in a thread of its own: autograd modes are
    thread-local and would otherwise leak into the consumer between two of them."""

    def __init__(
        self,
        host: QwenHost,
        image: Given,
        question: str,
        config: Config | None,
        max_new_tokens: int,
        deadline_s: float,
        grid: tuple[int, int] | None,
        text: str | None = None,
    ) -> None:
        """As `ARRCOCQwen.stream` on the host; no config is the stock model."""
        self.host, self.image, self.question, self.config = host, image, question, config
        self.grid, self.text = grid, text or question
        self.max_new_tokens, self.deadline_s = max_new_tokens, deadline_s
        self.out: queue.Queue = queue.Queue()
        self.stop = threading.Event()
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.realization: Realization | Moments | None = None
        self.in_full: str | None = None

    def snapshots(self) -> Iterator[Answer]:
        """Yield what the thread reports; its exception is raised here; leaving early stops it."""
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        try:
            while True:
                item = self._next()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if item.done:
                    return
        finally:
            self.stop.set()
            thread.join(JOIN_TIMEOUT_S)

    def _next(self) -> Answer | BaseException:
        try:
            return self.out.get(timeout=STREAM_TIMEOUT_S)
        except queue.Empty:
            raise TimeoutError(f"the model said nothing for {STREAM_TIMEOUT_S:g} s") from None

    def finished(self) -> Answer:
        """The finished answer, in the caller's thread: one more would have helpers of its own, and
        more of those than cores rest between two operations."""
        with self.host.lock:
            return self._made()

    def _work(self) -> None:
        try:
            while not self.host.lock.acquire(timeout=TURN_S):
                if self.stop.is_set():
                    return
            try:
                self.out.put(self._made())
            finally:
                self.host.lock.release()
        except BaseException as error:  # handed to the consumer, whatever it is
            self.out.put(error)

    def _made(self) -> Answer:
        with torch.inference_mode():
            return self.host.once_more_if_narrow(self._answer)

    def _answer(self) -> Answer:
        self.seconds, self.realization = dict.fromkeys(STAGES, 0.0), None
        host, timed = self.host, lambda name: stage(self.seconds, name, host.synchronize)
        reset_peak_memory(host.device)
        self._report("preprocess")
        with timed("preprocess"):
            ask = host.prepare(self.image, self.text, self.grid)
            self._decide_when(ask)
            if self.config is None or self.config.prune == "after":
                # All of them will be needed; they are prepared here, once.
                _ = [picture.patches for picture in ask.pictures]
        if self.config is not None:
            self._report("glance")
            realization = decided(host, ask, self.question, self.config)
            self.seconds.update(realization.seconds)
            self.realization = without_state(realization)
        else:
            realization = None
        self._report("encode")
        if realization and realization.config.is_auto and not realization.fallback:
            return self._in_rounds(ask, realization, timed)
        with timed("encode"):
            tokens = host.encode_each(ask.pictures, views_of(realization))
        self._report("prefill")
        # A glance that stays is in the cache already, prefix included: `generate` goes on behind it.
        kept = realization.kept_glance if realization else None
        places = [own.places for own in tokens]
        if kept:
            places = [torch.cat([kept.state.tokens.places, *places])]
        # The layers by which a glance that stays was not read yet when it said where.
        with timed("prefill"):
            cache = kept.state.cache if kept else host.new_cache()
        return self._generate(ask, places, cache, joined(tokens))

    def _decide_when(self, ask: Ask | Views) -> None:
        """Turn to the full look where `when="auto"` and the focused one would not be sooner here."""
        if self.config is None or self.config.when == "always":
            return
        if isinstance(ask, Views):
            check_config(self.config)  # whatever would be sooner
        ways = (_way(self.host, how, len(ask.pictures)) for how in (self.config, None))
        self.in_full = self.host.times.passes_over(
            _worked_on(self.host, self.config, ask, self.question), *ways
        )
        if self.in_full:
            self.config = None

    def _in_rounds(self, ask: Ask, realization: Realization, timed: Timed) -> Answer:
        """The answer of share "auto"."""
        spent = spend(self.host, ask, realization, timed)
        self.realization = without_state(spent.realization)
        self._report("prefill")
        kept = realization.kept_glance
        places = torch.cat([*([kept.state.tokens.places] if kept else []), spent.tokens.places])
        # `generate` needs a token to begin with: the prompt's last one is read once more.
        spent.cache.crop(-1)
        return self._generate(ask, [places], spent.cache, None)

    def _generate(
        self, ask: Ask | Views, places: list[Tensor], cache: Cache, tokens: TokenSet | None
    ) -> Answer:
        """Decode behind what a cache holds.

        Ids and positions are those of the whole prompt, whose visual tokens stand at `places`, those of
        each block; of these `tokens` alone are yet to be read.
        """
        counts = [len(own) for own in places]
        host, prompt, ids = self.host, ask.prompt, ask.prompt.ids(counts)
        report = functools.partial(self._report, "decode")
        streamer, unsure = Streamer(host.tokenizer, report), FirstEntropy()
        host.synchronize()
        start = time.perf_counter()
        stop = Stop(self.stop, self.deadline_s)
        host.model.generate(
            input_ids=ids,
            position_ids=prompt.position_ids(places),
            mm_encoder_outputs=tokens.encoder_outputs(prompt.modality) if tokens else None,
            **{CACHE: cache},
            streamer=streamer,
            logits_processor=LogitsProcessorList([unsure]),
            stopping_criteria=StoppingCriteriaList([stop]),
            max_new_tokens=self.max_new_tokens,
            **GREEDY,
        )
        host.synchronize()
        end = time.perf_counter()
        first = streamer.first_at or end
        self.seconds["prefill"] += first - start
        self.seconds["decode"] = end - first
        measures = self._measures(streamer, sum(counts), ask, ids.shape[1])
        ended = _ended(host, streamer.ids, stop)
        measures = replace(
            measures, first_token_entropy=unsure.nats(), ended=ended, in_full=self.in_full
        )
        self._note(
            _worked_on(host, self.config, ask, self.question), measures.stages, len(ask.pictures)
        )
        return Answer(streamer.text, "done", True, measures, self.realization)

    def _note(self, tokens: dict[str, int], seconds: dict[str, float], blocks: int) -> None:
        """Remember what the look took; one that fell back says nothing of others."""
        times, views = self.host.times, views_of(self.realization) or []
        way = _way(self.host, self.config, blocks)
        if self.config is None:
            times.note(paying.FULL, tokens, seconds, way)
        elif not any(view.fallback for view in views):
            times.note(paying.FOCUSED, tokens, seconds, way)

    def _measures(
        self, streamer: "Streamer", visual_tokens: int, ask: Ask | Views, prompt_length: int
    ) -> Measures:
        peak, kind = peak_memory(self.host.device)
        decode, count = self.seconds["decode"], len(streamer.ids)
        return Measures(
            stages=dict(self.seconds),
            time_to_first_token=sum(v for k, v in self.seconds.items() if k != "decode"),
            decode_tokens_per_second=(count - 1) / decode if count > 1 and decode > 0 else 0.0,
            new_tokens=count,
            visual_tokens=visual_tokens,
            visual_tokens_full=ask.tokens,
            kv_cache_bytes=kv_bytes_per_token(self.host.model) * prompt_length,
            peak_memory_bytes=peak,
            peak_memory_kind=kind,
        )

    def _report(self, name: str, text: str = "") -> None:
        if self.stop.is_set() and name != "decode":  # which ends by itself, with what there is
            raise InterruptedError("the consumer left")
        self.out.put(Answer(text, name, realization=self.realization))


def _ended(host: QwenHost, ids: list[int], stop: Stop) -> str:
    """Why no more tokens came. An end token counts before a deadline that it just met."""
    ends = host.model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    if ids and ids[-1] in ends:
        return "end"
    return "time" if stop.late else "length"


def _way(host: QwenHost, config: Config | None, blocks: int) -> str:
    if config is None:
        return paying.way_of(None, blocks=blocks)
    weights = host.policy(config)
    return paying.way_of(config, context_for(config, weights), weights is not None, blocks)


def _worked_on(
    host: QwenHost, config: Config | None, ask: Ask | Views, question: str
) -> dict[str, int]:
    """The tokens by which `paying.STAGES` grow: of the budget, which is known before a look."""
    if config is None:
        return {"native": ask.tokens}
    context = context_for(config, host.policy(config))
    glance = sum(glance_tokens_each([picture.grid for picture in ask.pictures], context))
    held = config.tokens(ask.tokens, lexical_tier(question))
    return paying.worked_on(config, ask.tokens, held, glance)
