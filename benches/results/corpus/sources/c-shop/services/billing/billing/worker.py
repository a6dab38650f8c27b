"""Takes payments from the queue and charges them at the provider.

A message is acknowledged only after the result is stored. A worker that dies in between
leaves the message in the queue, and the next worker sees it again; the idempotency key
makes the provider answer the second call with the result of the first.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal

import pika
import requests

from billing.ledger import Ledger, LedgerError

log = logging.getLogger("billing.worker")

MAX_ATTEMPTS = 6
FIRST_DELAY = 2.0
LONGEST_DELAY = 300.0
PROVIDER_URL = os.environ.get("PROVIDER_URL", "https://pay.example.net/v2")
TIMEOUT = float(os.environ.get("GATEWAY_TIMEOUT_SECONDS", "8"))

# Codes of the provider with which a further attempt makes no sense.
FINAL_CODES = {
    "card_declined",
    "card_expired",
    "insufficient_funds",
    "invalid_account",
    "currency_not_supported",
}


class Declined(Exception):
    """The provider has refused the payment for good."""

    def __init__(self, code: str):
        super().__init__(code)
        self.code = code


class Unavailable(Exception):
    """The provider did not answer, or asks us to come back later."""

    def __init__(self, reason: str, retry_after: float | None = None):
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Payment:
    id: str
    order_id: str
    amount: Decimal
    currency: str
    source: str
    attempt: int = 1

    @classmethod
    def from_message(cls, body: bytes, headers: dict) -> "Payment":
        data = json.loads(body)
        return cls(
            id=data["id"],
            order_id=data["order_id"],
            amount=Decimal(data["amount"]),
            currency=data["currency"].upper(),
            source=data["source"],
            attempt=int(headers.get("x-attempt", 1)),
        )


def idempotency_key(payment: Payment) -> str:
    # Without the attempt: all attempts of one payment are the same to the provider.
    return f"{payment.order_id}:{payment.id}"


def charge(session: requests.Session, payment: Payment) -> str:
    """Charges the payment, and returns the provider's number for it."""
    try:
        answer = session.post(
            f"{PROVIDER_URL}/charges",
            json={
                "amount": str(payment.amount),
                "currency": payment.currency,
                "source": payment.source,
                "metadata": {"order": payment.order_id},
            },
            headers={"Idempotency-Key": idempotency_key(payment)},
            timeout=(3.05, TIMEOUT),
        )
    except requests.Timeout as error:
        # Nobody knows whether the money was taken: only the same key is safe.
        raise Unavailable("timeout") from error
    except requests.ConnectionError as error:
        raise Unavailable("connection") from error
    if answer.status_code == 429 or answer.status_code >= 500:
        retry_after = answer.headers.get("Retry-After")
        raise Unavailable(f"HTTP {answer.status_code}", float(retry_after) if retry_after else None)
    data = answer.json()
    if answer.status_code >= 400:
        code = data.get("error", {}).get("code", "unknown")
        if code in FINAL_CODES:
            raise Declined(code)
        raise Unavailable(code)
    return data["id"]


def delay_before(attempt: int, retry_after: float | None) -> float:
    """Returns how many seconds to wait before the next attempt."""
    if retry_after is not None:
        return min(retry_after, LONGEST_DELAY)
    # Full jitter: without it all workers come back at once after an outage.
    return random.uniform(0, min(LONGEST_DELAY, FIRST_DELAY * 2**attempt))


class Worker:
    def __init__(self, channel, ledger: Ledger, queue: str, concurrency: int):
        self.channel = channel
        self.ledger = ledger
        self.queue = queue
        self.pool = ThreadPoolExecutor(max_workers=concurrency)
        self.session = requests.Session()
        self.stopping = False

    def run(self) -> None:
        self.channel.basic_qos(prefetch_count=self.pool._max_workers)
        for method, properties, body in self.channel.consume(self.queue, inactivity_timeout=1.0):
            if self.stopping:
                break
            if method is None:
                continue
            self.pool.submit(self.handle, method.delivery_tag, properties.headers or {}, body)
        self.channel.cancel()
        self.pool.shutdown(wait=True)

    def handle(self, tag: int, headers: dict, body: bytes) -> None:
        payment = Payment.from_message(body, headers)
        begun = time.monotonic()
        try:
            reference = charge(self.session, payment)
        except Declined as error:
            log.warning("payment %s declined: %s", payment.id, error.code)
            self.ledger.mark_failed(payment.id, error.code)
            self.publish_event(payment, "payment.declined", code=error.code)
            self.ack(tag)
            return
        except Unavailable as error:
            self.retry(tag, payment, body, error)
            return
        try:
            self.ledger.record(payment.id, payment.order_id, payment.amount, payment.currency, reference)
        except LedgerError:
            # The money is taken but not in the books. The message stays, so that the next
            # worker gets the same reference from the provider and records it.
            log.exception("payment %s: charged as %s but not recorded", payment.id, reference)
            self.nack(tag, requeue=True)
            return
        log.info("payment %s charged in %.2f s", payment.id, time.monotonic() - begun)
        self.publish_event(payment, "payment.charged", reference=reference)
        self.ack(tag)

    def retry(self, tag: int, payment: Payment, body: bytes, error: Unavailable) -> None:
        if payment.attempt >= MAX_ATTEMPTS:
            log.error("payment %s: giving up after %d attempts: %s", payment.id, payment.attempt, error)
            # A rejected message goes to payments.dead, by the policy of the queue.
            self.nack(tag, requeue=False)
            return
        delay = delay_before(payment.attempt, error.retry_after)
        log.warning("payment %s: attempt %d: %s; again in %.0f s", payment.id, payment.attempt, error, delay)
        properties = pika.BasicProperties(
            headers={"x-attempt": payment.attempt + 1},
            expiration=str(int(delay * 1000)),
            delivery_mode=2,
        )
        # A message that expires in the waiting queue falls back into the first one.
        self.call_in_loop(self.channel.basic_publish, "", f"{self.queue}.wait", body, properties)
        self.ack(tag)

    def publish_event(self, payment: Payment, name: str, **details) -> None:
        body = json.dumps({"order_id": payment.order_id, "payment_id": payment.id, **details})
        self.call_in_loop(self.channel.basic_publish, "shop.events", name, body.encode())

    def ack(self, tag: int) -> None:
        self.call_in_loop(self.channel.basic_ack, tag)

    def nack(self, tag: int, requeue: bool) -> None:
        self.call_in_loop(self.channel.basic_nack, tag, False, requeue)

    def call_in_loop(self, function, *arguments) -> None:
        # A channel belongs to the thread of its connection.
        self.channel.connection.add_callback_threadsafe(lambda: function(*arguments))


def main() -> None:
    parser = argparse.ArgumentParser(prog="billing.worker")
    parser.add_argument("--queue", default="payments")
    parser.add_argument("--concurrency", type=int, default=2)
    options = parser.parse_args()
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "INFO"), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["BROKER_URL"]))
    worker = Worker(connection.channel(), Ledger.connect(os.environ["DATABASE_URL"]), options.queue, options.concurrency)

    def stop(signum, frame):
        log.info("signal %d: finishing what has begun", signum)
        worker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    worker.run()


if __name__ == "__main__":
    main()
