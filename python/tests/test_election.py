"""Leader election and fencing."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, config_map, eventually, run, running
from steadfast_kube.testing import Server

# Short, so that a takeover takes a second or two.
SHORT = {"lease_duration": 2, "renew_deadline": 1, "retry_period": 0.2}


def test_one_of_two_candidates_leads(server: Server) -> None:
    # Longer than the test, so that only the release lets the other candidate lead.
    long = {**SHORT, "lease_duration": 10 * PATIENCE, "renew_deadline": PATIENCE}

    async def main() -> None:
        async with (
            steadfast.Informers(url=server.url) as one,
            steadfast.Informers(url=server.url) as two,
            AsyncExitStack() as stack,
        ):
            async with one.leader_election("operator", "shop", identity="one", **long) as first:
                await asyncio.wait_for(first.until_leader(), PATIENCE)
                waiting = two.leader_election("operator", "shop", identity="two", **long)
                second = await stack.enter_async_context(waiting)
                await eventually(lambda: second.holder == first.identity)
                assert first.is_leader and not second.is_leader
                lease = server.get("leases.coordination.k8s.io", "shop", "operator")
                assert lease["spec"]["holderIdentity"] == first.identity
            # The end of the block releases the lease.
            await asyncio.wait_for(second.until_leader(), PATIENCE)

    run(main())


def test_lost_lease_fences_the_client(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            async with informers.leader_election("operator", "shop", **SHORT) as election:
                leader = await asyncio.wait_for(election.until_leader(), PATIENCE)
                await leader.client.create(config_map("a"))
                assert leader.is_leader and 0 < leader.remaining <= 1
                # Renewals fail from now on.
                server.faults.respond(500, resource="leases")
                await asyncio.wait_for(leader.until_lost(), PATIENCE)
                assert not leader.is_leader
                with pytest.raises(steadfast.NotLeader):
                    await leader.client.create(config_map("b"))
                server.faults.respond_normally()
                next_leader = await asyncio.wait_for(election.until_leader(), PATIENCE)
                assert next_leader.fencing_token > leader.fencing_token
                await next_leader.client.create(config_map("b"))
                # An ended term never resumes.
                with pytest.raises(steadfast.NotLeader):
                    await leader.client.delete("configmaps", "shop/b")

    run(main())


def test_terms_are_iterated(server: Server) -> None:
    async def main() -> None:
        tokens = []
        async with steadfast.Informers(url=server.url) as informers:
            async with informers.leader_election("operator", "shop", **SHORT) as election:
                async for leader in election:
                    tokens.append(leader.fencing_token)
                    if len(tokens) == 2:
                        break
                    server.faults.respond(500, resource="leases", times=20)
        assert tokens == sorted(set(tokens))

    run(main())


def test_reconciles_follow_the_lease(server: Server) -> None:
    server.create(config_map("a"))
    writers: list[str] = []

    def reconciler(identity: str) -> steadfast.Reconciler:
        @steadfast.reconcile("configmaps", namespace="shop", name=identity)
        async def write(config: steadfast.Object, context: steadfast.Context) -> float:
            assert context.fencing_token
            writers.append(identity)
            await context.client.patch("configmaps", context.key, {"data": {"writer": identity}})
            return 0.02

        return write

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as one, steadfast.Informers(url=server.url) as two:
            async with one.leader_election("operator", "shop", **SHORT) as first:
                await asyncio.wait_for(first.until_leader(), PATIENCE)
                async with two.leader_election("operator", "shop", **SHORT) as second:
                    async with running(one, reconciler("one"), election=first, grace_period=0) as task:
                        async with running(two, reconciler("two"), election=second, grace_period=0) as standby:
                            await eventually(lambda: writers.count("one") > 3, task)
                            assert "two" not in writers
                            # The leader releases its lease.
                            await first._started.stop()
                            await eventually(lambda: writers.count("two") > 3, standby)
                            assert "one" not in writers[writers.index("two") :]

    run(main())


def test_term_end_cancels_and_next_term_resumes(server: Server) -> None:
    server.create(config_map("a"))
    tokens: list[int] = []
    cancelled = 0

    @steadfast.reconcile("configmaps", namespace="shop")
    async def hold(config: steadfast.Object, context: steadfast.Context) -> None:
        nonlocal cancelled
        assert context.fencing_token
        tokens.append(context.fencing_token)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            async with informers.leader_election("operator", "shop", **SHORT) as election:
                async with running(informers, hold, election=election, grace_period=0) as task:
                    await eventually(lambda: len(tokens) == 1, task)
                    server.faults.respond(500, resource="leases")
                    await eventually(lambda: cancelled == 1, task)
                    server.faults.respond_normally()
                    await eventually(lambda: len(tokens) == 2, task)
                    assert tokens[1] > tokens[0]

    run(main())


def test_missing_permission_is_reported(server: Server) -> None:
    server.faults.respond(403, resource="leases")

    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            async with informers.leader_election("operator", "shop", **SHORT) as election:
                lease_error = await eventually(lambda: election.lease_error)
                assert "leases" in lease_error

    run(main())


def test_inconsistent_durations_are_rejected(server: Server) -> None:
    async def main() -> None:
        async with steadfast.Informers(url=server.url) as informers:
            with pytest.raises(ValueError):
                async with informers.leader_election("operator", "shop", lease_duration=1, renew_deadline=5):
                    pass

    run(main())
