"""Machine code for regions of a graph: nodes become calls of kernels, each kernel LLVM IR, and a run of the region one native call.

In the order data flows:

1. ``capability`` says which nodes become regions; ``fuse`` finds patterns of nodes that one kernel does.
2. ``region`` is the compiled region. For each signature of shapes ``lowering`` makes a program of it, by the functions in ``lower/``, one
   family of operators to a file, out of what ``prepared`` and ``packer`` make of constants once.
3. ``program`` is the result as data: buffers, offsets and calls of kernels. ``tensor`` is one operand of it, ``image`` its final form.
4. ``kernels/`` describes kernels, which write LLVM IR with ``emit``; element-wise work in them is an expression (``expr``,
   ``instructions``, and the functions in ``approx``, ``approx64``, ``angles`` and ``quotient``).
5. ``compiler`` gives the addresses of kernels: from this process, from the disk (``cache``, ``loader``) or compiled now (``llvm``, in the
   threads of ``crew``). ``target`` and ``host`` say what for.
6. ``bound`` runs an image with the operands of a run, on the threads of ``pool``. ``driver``, ``waits``, ``trips`` and ``entry`` are the
   native code around the kernels: the loop over calls, how threads wait, trips of a loop, a call from Python.

Apart from that order: ``families`` and ``undecided`` let one program serve several signatures; ``claimed`` and ``shelf`` keep
claims and programs for later processes; ``tuning`` chooses between algorithms; ``settings`` are the users'; ``interpret`` runs with
NumPy what has no code for its shapes; ``awaited`` says what is bound only when sizes have come; ``elements`` has
addresses of arrays for kernels that are called without a region. ``documents``, ``vocabulary`` and ``gram_table`` count words
of texts. ``objects``, with ``interpreter``, makes functions that call the interpreter's C API, for strings and sequences (``text``,
``words``, ``hashes``, ``rearranged``, ``strided``, ``sequences``).
"""
