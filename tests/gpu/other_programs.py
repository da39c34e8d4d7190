"""Jobs of other kinds than those the rules of diagnosis were looked at with: experts, gradients that are accumulated, a model that serves.

Each gives a function that does one step. Every rank draws its own sizes, as real batches and requests have them."""


def experts(sizes, device):
    """A mixture of experts, one on each rank: tokens go to their expert and back by all-to-all in every layer, gradients of the rest by DDP.
    Which expert is asked for most changes from step to step."""
    import torch
    import torch.distributed as dist
    import torch.distributed.nn.functional as through

    world = dist.get_world_size()

    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.router = torch.nn.Linear(sizes.width, world)
            self.expert = torch.nn.Sequential(torch.nn.Linear(sizes.width, 4 * sizes.width), torch.nn.GELU(), torch.nn.Linear(4 * sizes.width, sizes.width))

        def forward(self, x):
            flat = x.flatten(0, 1)
            weight, choice = self.router(flat).softmax(-1).max(-1)
            order = choice.argsort()
            to_each = choice.bincount(minlength=world)
            from_each = torch.empty_like(to_each)
            dist.all_to_all_single(from_each, to_each)
            sent, got = to_each.tolist(), from_each.tolist()
            there = through.all_to_all_single(flat.new_empty(sum(got), sizes.width), flat[order], got, sent)
            back = through.all_to_all_single(flat.new_empty(sum(sent), sizes.width), self.expert(there), sent, got)
            return x + (back[order.argsort()] * weight[:, None]).view_as(x)

    layers = torch.nn.ModuleList(Experts() for _ in range(sizes.layers // 2)).to(device)
    own = {id(each) for layer in layers for each in layer.expert.parameters()}
    shared = [each for each in layers.parameters() if id(each) not in own]
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-4)

    def step():
        x = torch.randn(sizes.batch, sizes.length, sizes.width, device=device) + torch.randn(sizes.width, device=device)
        for layer in layers:
            x = layer(x)
        x.square().mean().backward()
        for each in shared:
            dist.all_reduce(each.grad)
            each.grad /= world
        optimizer.step()
        optimizer.zero_grad()
        return x.mean().item()

    return step


def accumulate(sizes, device):
    """DDP that adds up the gradients of four batches before it reduces them; sequences as long as they happen to be."""
    import torch
    from full_node_rank import Model, loss_of

    model = torch.nn.parallel.DistributedDataParallel(Model(sizes).to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def backward():
        tokens = torch.randint(sizes.vocabulary, (sizes.batch // 2, 128 + 32 * int(torch.randint(5, ())) + 1), device=device)
        loss_of(model(tokens[:, :-1]), tokens[:, 1:]).backward()

    def step():
        with model.no_sync():
            for _ in range(3):
                backward()
        backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad()

    return step


def serve(sizes, device):
    """A model cut across ranks that answers requests, as inference servers do it: an all-reduce after each half layer, an all-gather of
    the scores, no optimizer. A request's prompt goes through it at once, then its answer token by token; several requests at a time."""
    import torch
    import torch.distributed as dist

    world = dist.get_world_size()
    wide = 4096
    halves = torch.nn.ModuleList(
        torch.nn.Sequential(torch.nn.Linear(wide, wide // world), torch.nn.GELU(), torch.nn.Linear(wide // world, wide)) for _ in range(8 * sizes.layers)
    ).to(device)
    head = torch.nn.Linear(wide, sizes.vocabulary // world).to(device)

    def forward(x):
        for half in halves:
            part = half(x)
            dist.all_reduce(part)
            x = x + part / world
        own = head(x[-16:])
        scores = own.new_empty(world * own.shape[0], own.shape[1])
        dist.all_gather_into_tensor(scores, own)
        return x, scores.sum().item()

    @torch.no_grad()
    def step():
        lengths = torch.randint(1, 9, (2,), device=device)
        dist.broadcast(lengths, 0)  # the scheduler says what comes next
        prompt, answer = lengths.tolist()
        x, _ = forward(torch.randn(64 * prompt, wide, device=device))
        for _ in range(2 * answer):
            x, _ = forward(x[-16:])

    return step


PROGRAMS = {"experts": experts, "accumulate": accumulate, "serve": serve}
