"""What Horovod's users call, on Telegrad's operations: ``import telegrad.horovod.torch as
hvd``, or ``telegrad.horovod.mxnet``. Modules have the names that they have in Horovod, and
``python -m telegrad.run --horovod SCRIPT`` gives a script them by Horovod's own names.
docs/from_horovod.md says what differs.
"""
