"""Double-entry books: each payment and each refund has two entries that add up to zero."""

from __future__ import annotations

from contextlib import contextmanager
from decimal import ROUND_HALF_EVEN, Decimal

import psycopg

CENT = Decimal("0.01")


class LedgerError(Exception):
    """The books could not be written."""


class UnbalancedEntry(LedgerError):
    """The two sides of a transaction differ."""


class RefundTooLarge(LedgerError):
    """More is paid back than was paid."""


class Ledger:
    def __init__(self, connection: psycopg.Connection):
        self.connection = connection

    @classmethod
    def connect(cls, url: str) -> "Ledger":
        return cls(psycopg.connect(url, autocommit=False))

    @contextmanager
    def transaction(self):
        try:
            with self.connection.transaction():
                yield self.connection.cursor()
        except psycopg.Error as error:
            raise LedgerError(str(error)) from error

    def record(self, payment_id: str, order_id: str, amount: Decimal, currency: str, reference: str) -> None:
        with self.transaction() as cursor:
            cursor.execute(
                "insert into payments (id, order_id, amount, currency, reference, state)"
                " values (%s, %s, %s, %s, %s, 'charged') on conflict (id) do nothing",
                (payment_id, order_id, amount, currency, reference),
            )
            if cursor.rowcount == 0:
                # Another worker was faster.
                return
            self.write(cursor, payment_id, [("provider", amount), ("revenue", -amount)])

    def refund(self, payment_id: str, amount: Decimal) -> Decimal:
        """Pays back a part of a payment, and returns what is left of it."""
        with self.transaction() as cursor:
            cursor.execute("select amount, refunded from payments where id = %s for update", (payment_id,))
            paid, refunded = cursor.fetchone()
            left = paid - refunded
            if amount > left:
                raise RefundTooLarge(f"{payment_id}: {amount} of {left}")
            cursor.execute("update payments set refunded = refunded + %s where id = %s", (amount, payment_id))
            self.write(cursor, payment_id, [("provider", -amount), ("refunds", amount)])
            return left - amount

    def mark_failed(self, payment_id: str, code: str) -> None:
        with self.transaction() as cursor:
            cursor.execute("update payments set state = 'failed', code = %s where id = %s", (code, payment_id))

    def write(self, cursor, payment_id: str, entries: list[tuple[str, Decimal]]) -> None:
        if sum(amount for _, amount in entries) != 0:
            raise UnbalancedEntry(payment_id)
        for account, amount in entries:
            cursor.execute(
                "insert into entries (payment_id, account, amount) values (%s, %s, %s)",
                (payment_id, account, amount),
            )

    def balance(self) -> Decimal:
        with self.transaction() as cursor:
            cursor.execute("select coalesce(sum(amount), 0) from entries")
            return cursor.fetchone()[0]


def split_refund(total: Decimal, shares: list[Decimal]) -> list[Decimal]:
    """Divides a refund over the cards an order was paid with, in proportion to their shares.

    Each part is rounded to cents; what the rounding leaves goes to the largest share, so that
    the parts add up to the total.
    """
    whole = sum(shares)
    if whole <= 0:
        raise ValueError("the shares add up to nothing")
    parts = [(total * share / whole).quantize(CENT, rounding=ROUND_HALF_EVEN) for share in shares]
    largest = max(range(len(shares)), key=lambda index: shares[index])
    parts[largest] += total - sum(parts)
    return parts
