"""Wrong flags: the documented code, one line that names flag, value and the way out."""

import os
import re
import shutil
import struct
import subprocess
import unittest
import zlib

from harness import BINARY, SHORT, SystemTest

# flags -> what the line must contain.
WRONG = [
    (["--batchsize", "3"], ["no flag '--batchsize'; did you mean --batch-size?", "--help"]),
    (["--gc_typ=2bit"], ["no flag '--gc-typ'; did you mean --gc-type?"]),
    (["--gc_type=3bit"], ["--gc-type 3bit"]),
    (["--bandwidth-limit", "3"], ["no flag '--bandwidth-limit' (telegrad-train --help"]),
    (["--epochs", "3"], ["no flag '--epochs'; did you mean --num-epochs?"]),
    (["-n", "2"], ["no flag '-n' (telegrad-train --help"]),
    (["--compare", "none", "2bit"],
     ["'2bit' belongs to no flag", "commas and no spaces", "--help"]),
    (["--continue=maybe"], ["--continue takes no value"]),
    (["--workers"], ["--workers needs a value"]),
    (["--join-timeout", "nan"], ["--join-timeout: 'nan' is not a number"]),
    (["--lr", "1", "--lr", "2"], ["--lr takes one value"]),
    (["--bogus"], ["--bogus", "--help"]),
    (["--gc-threshold", "banana"], ["banana", "auto", "0.5:batch"]),
    (["--gc-threshold", "-1"], ["-1", "positive"]),
    (["--network", "nonet"], ["--network nonet: ", "lenet", "mlp"]),
    (["--compare", "none,3bit"], ["--compare 3bit: ", "none", "2bit"]),
    (["--gc-type", "3bit"], ["--gc-type 3bit: ", "none", "2bit"]),
    (["--compare", ""], ["codec ''", "none", "2bit"]),
    (["--compare", "2bit+bogus=1"], ["bogus=1", "reply, ", "local-steps, "]),
    (["--compare", "none,2bit+local-steps=x"],
     ["'2bit+local-steps=x'", "--local-steps"]),
    (["--compare", "none,2bit+outer-lr=0.7"],
     ["'2bit+outer-lr=0.7'", "--outer-lr", "--local-steps"]),
    (["--compare", "none,2bit+kv-store=dist_async"],
     ["'2bit+kv-store=dist_async'", "--update-on server"]),
    (["--compare", "none,2bit+local-steps=4", "--what-if", "1gbit"],
     ["'2bit+local-steps=4'", "--what-if"]),
    (["--compare", "none,2bit+kv-store=allreduce", "--emulate-workers", "2"],
     ["'2bit+kv-store=allreduce'", "--kv-store", "--emulate-workers"]),
    (["--kv-store", "foo"], ["--kv-store foo: ", "dist_sync", "horovod"]),
    (["--data", "foo"], ["--data foo: ", "digits", "mnist:DIR"]),
    (["--data", "mnist:/nonexistent"], ["/nonexistent", "images"]),
    (["--gpus", "0"], ["--gpus 0", "CPU"]),
    (["--gpus", "99"], ["--gpus 99", "CPU"]),
    (["--gpus", "0,0"], ["--gpus 0,0", "device 0 comes twice"]),
    (["--gpus", "x"], ["--gpus x", "0,1, or all"]),
    (["--gpus", "emulated", "--devices", "2"],
     ["--devices above 1 with --kv-store dist_sync"]),
    (["--gpus", "emulated", "--devices", "2", "--kv-store", "local",
      "--local-steps", "2"], ["--local-steps with --devices above 1"]),
    (["--gc-min-bytes", "3x"], ["--gc-min-bytes 3x: ", "64KiB"]),
    (["--gc-type", "topk:2"], ["topk", "density", "2"]),
    (["--gc-type", "2bit:density=1"], ["2bit", "density", "threshold"]),
    (["--gc-rule", "bias"], ["bias", "PATTERN=CODEC"]),
    (["--gc-rule", "(=none"], ["(", "pattern"]),
    (["--gc-type", "auto", "--gc-allow", "fp16,3bit"],
     ["--gc-allow", "3bit", "2bit"]),
    (["--gc-allow", "2bit,fp16,2bit"], ["--gc-allow", "2bit", "twice"]),
    (["--gc-allow", "topk:0.01,topk:density=0.01"], ["--gc-allow", "twice"]),
    (["--gc-allow", "none,2bit"], ["--gc-allow", "none", "leave it out"]),
    (["--gc-allow", "2bit,"], ["--gc-allow"]),
    (["--gc-allow", ",".join(f"topk:0.0{i}" for i in range(1, 10))],
     ["--gc-allow", "9 codecs", "at most 8"]),
    (["--gc-guard", "perhaps"], ["--gc-guard", "perhaps"]),
    (["--servers", "0"], ["dist_sync needs servers", "allreduce"]),
    (["--variable-update", "mirrored"], ["mirrored", "replicated"]),
    (["--variable_update", "replicated", "--kv-store", "local"],
     ["--kv-store", "--variable-update"]),
    (["--variable_update", "replicated", "--workers", "2"],
     ["one process", "distributed_all_reduce"]),
    (["--all_reduce_spec", "pscpu"], ["--all-reduce-spec", "no effect"]),
    (["--devices", "2", "--work-load-list", "3,1,1"],
     ["3,1,1", "--devices 2"]),
    (["--devices", "2", "--work-load-list", "2,1"], ["2,1", "128 samples"]),
    (["--devices", "2", "--work-load-list", "0,1"], ["0,1", "128 samples"]),
    (["--kv-store", "nccl"], ["nccl", "--gpus 0,1 --devices 2"]),
    (["--kv-store", "nccl", "--devices", "2"], ["nccl", "--gpus 0,1"]),
    (["--kv-store", "nccl", "--gpus", "emulated"], ["nccl", "emulated"]),
    (["--kv-store", "nccl", "--gpus", "0", "--devices", "2"],
     ["--kv-store nccl", "--devices 2", "--gpus 0 has 1"]),
    (["--kv-store", "nccl", "--gpus", "97,98", "--devices", "2",
      "--gc-type", "2bit"], ["nccl", "dense", "2bit", "device"]),
    (["--kv-store", "nccl", "--gpus", "97", "--gc-nonfinite", "zero"],
     ["nccl", "--gc-nonfinite error, skip"]),
    (["--kv-store", "nccl", "--gpus", "97", "--gc-momentum", "nesterov"],
     ["nccl", "leave --gc-momentum out"]),
    (["--kv-store", "nccl", "--gpus", "97", "--update-on", "server"],
     ["nccl", "optimizer", "--update-on"]),
    (["--kv-store", "nccl", "--gpus", "97,98", "--devices", "2"],
     ["nccl", "cannot be used"]),
    (["--variable-update", "replicated", "--all-reduce-spec", "nccl"],
     ["nccl", "--gpus 0,1 --devices 2"]),
    (["--dtype", "float8"], ["--dtype", "float8"]),
    (["--loss-scale", "1024"], ["--loss-scale", "--dtype float16"]),
    (["--dtype", "float16", "--loss-scale", "3"],
     ["--loss-scale '3'", "power of two"]),
    (["--dtype", "float16", "--kv-store", "dist_async", "--update-on", "server"],
     ["dist_async", "--dtype float16", "take bfloat16"]),
    (["--dtype", "float16", "--local-steps", "4"],
     ["loss scale", "--local-steps"]),
    (["--kv-store", "local", "--tier1", "on"], ["--tier1", "one process"]),
    (["--kv-store", "dist_async", "--update-on", "server", "--tier1", "on"],
     ["--tier1", "wait"]),
    (["--tier1", "2"], ["--tier1", "auto"]),
    (["--kv-store", "allreduce", "--servers", "1"],
     ["allreduce", "no servers", "--servers"]),
    (["--transport", "smoke"], ["smoke", "tcp, inproc"]),
    (["--transport", "inproc"], ["inproc", "one process", "tcp"]),
    (["--transport", "tcp", "--tls", "bogus"], ["tls", "bogus", "none of tcp"]),
    (["--tls", "bogus"], ["tls", "bogus", "tcp, shm, verbs, efa"]),
    (["--tcp-congestion", "bogus"], ["bogus", "this kernel has"]),
    (["--link", "banana"], ["--link banana: ", "1gbit"]),
    (["--link", "1gbit,banana"], ["1gbit,banana", "5ms"]),
    (["--link", "1gbit,3s"], ["1gbit,3s", "at most 1 s"]),
    (["--connections", "0"], ["--connections", "64"]),
    (["--connections", "65"], ["--connections", "64"]),
    (["--connections", "many"], ["--connections", "many", "auto"]),
    (["--transport", "ucx", "--rails", "lo"], ["ucx", "no rails", "tcp"]),
    (["--rails", "lo"], ["--rails", "--secret-file"]),
    (["--rails", "eth99", "--insecure"], ["eth99", "lo"]),
    (["--seed", "0-2"], ["--seed", "'0-2'", "0,1,2"]),
    (["--lr", "abc"], ["--lr", "'abc'", "number of 0 or more"]),
    (["--wd", "nan"], ["--wd", "'nan'", "number of 0 or more"]),
    (["--num-batches", "-1"], ["--num-batches", "'-1'", "0 or more"]),
    (["--checkpoint", ""], ["--checkpoint ''", "leave it out"]),
    (["--secret-file", ""], ["--secret-file ''", "leave it out"]),
    (["--plan", ""], ["--plan ''", "leave it out"]),
    (["--scheduler", ""], ["--scheduler ''", "leave it out"]),
    (["--link", ""], ["--link ''", "leave it out"]),
    (["--lr-mult", ""], ["--lr-mult ''", "leave it out"]),
    (["--out", ""], ["--out ''", "leave it out"]),
    (["--checkpoint", "/proc/none/x"], ["--checkpoint /proc/none/x"]),
    (["--checkpoint", BINARY], ["--checkpoint", BINARY]),
    (["--out", "/proc/none/x"], ["--out", "/proc/none/x"]),
    (["--out", BINARY], ["--out", BINARY]),
    (["--batch-size", "10001"], ["--batch-size 10001", "2 workers", "20000"]),
    (["--batch-size", "65536", "--grad-accumulation", "65536"],
     ["--batch-size 65536 times --grad-accumulation 65536", "20000"]),
    (["--benchmark", "1", "--num-examples", "10"],
     ["--batch-size 64", "2 workers", "10 samples", "--num-examples"]),
    (["--inject", "nan:0:fc1.weight"], ["--inject", "nan:WORKER:TENSOR"]),
    (["--inject", "nan:2:fc1.weight:0:0"], ["--inject", "2 workers"]),
    (["--inject", "nan:0:fc9.weight:0:0"], ["--inject", "fc9.weight", "lenet"]),
    (["--inject", "nan:0:fc1.weight:99999999:0"], ["--inject", "elements"]),
    (["--inject", "nan:0:fc1.weight:0:-1"], ["--inject", "steps"]),
    (["--compare", "none,none"], ["--compare", "none", "twice"]),
    (["--seed", "1,1"], ["--seed", "1", "twice"]),
    (["--compare", "none", "--gc-type", "2bit"], ["--gc-type", "--compare"]),
    (["--gc-allow", "2bit"], ["--gc-allow", "--gc-type auto"]),
    (["--gc-threshold", "0.5"], ["--gc-threshold", "no codec"]),
    (["--gc-packing", "radix"], ["--gc-packing", "no codec"]),
    (["--benchmark", "1", "--data", "digits"], ["--data", "--benchmark 1"]),
    (["--lr-factor", "0.5"], ["--lr-factor", "--lr-step-epochs"]),
    (["--optimizer", "adadelta"],
     ["adadelta", "sgd, nag, adam, adamw, adagrad, rmsprop, muon"]),
    (["--optimizer", "muon", "--update-on", "server"],
     ["--optimizer muon", "whole matrices", "take --update-on worker"]),
    (["--optimizer", "muon", "--kv-store", "dist_async", "--update-on",
      "server"], ["--optimizer muon", "--kv-store dist_sync"]),
    (["--optimizer", "muon", "--variable-update", "parameter_server"],
     ["--optimizer muon", "in place of --variable-update"]),
    (["--optimizer", "muon", "--compare", "none,none+update-on=server"],
     ["--optimizer muon", "take --update-on worker"]),
    (["--gc-normalize", "on"], ["--gc-normalize on", "adam, adamw and muon"]),
    (["--optimizer", "adamw", "--gc-normalize", "on", "--update-on", "server"],
     ["--gc-normalize on", "--update-on worker"]),
    (["--optimizer", "adamw", "--gc-normalize", "on", "--local-steps", "5"],
     ["--gc-normalize on", "changes of weights"]),
    (["--optimizer", "adam", "--gc-normalize", "on", "--adam-freeze-after",
      "5"], ["--gc-normalize on", "--adam-freeze-after"]),
    (["--compare", "int2+normalize=perhaps"], ["normalize=perhaps", "on and off"]),
    (["--optimizer", "muon", "--adam-freeze-after", "5"],
     ["--adam-freeze-after", "adam and adamw"]),
    (["--optimizer", "adagrad", "--beta2", "0.9"], ["--beta2", "rmsprop"]),
    (["--optimizer", "rmsprop", "--beta1", "0.9"], ["--beta1", "adamw"]),
    (["--epsilon", "1e-7"], ["--epsilon", "adagrad and rmsprop"]),
    (["--optimizer", "adam", "--mom", "0.5"], ["--mom", "sgd and nag"]),
    (["--optimizer", "rmsprop", "--mom", "0.5"], ["--mom", "sgd and nag"]),
    (["--optimizer", "adamw", "--gc-type", "auto", "--gc-allow", "int8,2bit"],
     ["--gc-allow 2bit", "2.00 bits", "--local-steps"]),
    (["--optimizer", "rmsprop", "--gc-type", "auto", "--gc-allow", "2bit"],
     ["--gc-allow 2bit", "rmsprop", "--local-steps"]),
    (["--adam-freeze-after", "5"], ["--adam-freeze-after", "adamw"]),
    (["--optimizer", "adam", "--adam-freeze-after", "5", "--update-on",
      "server"], ["--adam-freeze-after", "--update-on worker"]),
    (["--beta1", "0.5"], ["--beta1", "adamw"]),
    (["--optimizer", "adam", "--beta1", "1"], ["--beta1", "'1'", "below 1"]),
    (["--lr-mult", "bias"], ["--lr-mult", "PATTERN=FACTOR"]),
    (["--wd-mult", "(=2"], ["--wd-mult", "pattern '('"]),
    (["--kv-store", "dist_async"], ["dist_async", "--update-on server"]),
    (["--kv-store", "dist_async", "--update-on", "server", "--gc-reply", "sum"],
     ["dist_async", "--gc-reply"]),
    (["--kv-store", "dist_async", "--update-on", "server", "--gc-nonfinite",
      "skip"], ["dist_async", "--gc-nonfinite skip"]),
    (["--kv-store", "dist_async", "--update-on", "server", "--lr-schedule",
      "cosine"], ["dist_async", "--lr-step-epochs"]),
    (["--local-steps", "4", "--variable-update", "horovod"],
     ["--variable-update", "no gradients are summed"]),
    (["--variable-update", "distributed_replicated", "--optimizer", "adam"],
     ["--optimizer sgd --mom 0"]),
    (["--lr-scaling", "linear", "--local-steps", "4"],
     ["--lr-scaling", "--local-steps", "one worker's"]),
    (["--lr-scaling", "twice"], ["--lr-scaling", "linear"]),
    (["--max-staleness", "3"], ["--max-staleness", "dist_async"]),
    (["--drop-slowest", "-1"], ["--drop-slowest", "-1"]),
    (["--drop-slowest", "1"], ["--drop-slowest 1", "--update-on server"]),
    (["--drop-slowest", "2", "--update-on", "server", "--workers", "2"],
     ["--drop-slowest 2 of 2 workers", "0 to 1"]),
    (["--drop-slowest", "2", "--update-on", "server", "--workers", "4",
      "--elastic", "2", "--checkpoint", "ck"],
     ["--drop-slowest 2 of 2 workers", "--elastic", "0 to 1"]),
    (["--drop-slowest", "1", "--kv-store", "allreduce"],
     ["--kv-store allreduce", "dist_sync --update-on server"]),
    (["--drop-slowest", "1", "--kv-store", "dist_async"],
     ["--kv-store dist_async", "dist_sync --update-on server"]),
    (["--drop-slowest", "1", "--kv-store", "local"],
     ["no servers", "dist_sync --update-on server"]),
    (["--drop-slowest", "1", "--update-on", "server", "--gc-type", "2bit",
      "--gc-reply", "sum"], ["--drop-slowest", "--gc-reply dense or auto"]),
    (["--drop-slowest", "1", "--update-on", "server", "--gc-nonfinite",
      "skip"], ["--gc-nonfinite skip", "zero or error"]),
    (["--drop-slowest", "1", "--update-on", "server", "--lr-schedule",
      "cosine"], ["--drop-slowest", "--lr-step-epochs"]),
    (["--drop-slowest", "1", "--update-on", "server", "--tier1", "on"],
     ["--tier1 on", "--drop-slowest"]),
    (["--max-staleness", "-1"], ["--max-staleness", "-1"]),
    (["--local-steps", "4", "--update-on", "server"],
     ["--local-steps", "--update-on worker"]),
    (["--local-steps", "4", "--gc-type", "auto"], ["--gc-type auto"]),
    (["--local-steps", "4", "--early-step", "0"], ["--early-step"]),
    (["--outer-lr", "1"], ["--outer-lr", "--local-steps"]),
    (["--local-fragments", "2"], ["--local-fragments", "--local-steps"]),
    (["--local-steps", "2", "--local-fragments", "3"],
     ["--local-fragments 3", "--local-steps 2"]),
    (["--lr-step-epochs", "1,2"], ["--lr-step-epochs 2", "0 to 1"]),
    (["--benchmark", "1", "--network", "profile:vgg16", "--lr", "1"],
     ["--lr", "no model"]),
    (["--benchmark", "1", "--network", "profile:vgg16", "--update-on",
      "server"],
     ["--update-on", "no model"]),
    (["--transport", "ucx", "--tcp-congestion", "reno"],
     ["--tcp-congestion", "--transport tcp"]),
    (["--bind", "203.0.113.77"], ["203.0.113.77", "lo 127.0.0.1"]),
    (["--bind", "203.0.113.0/24"], ["203.0.113.0/24", "lo 127.0.0.1"]),
    (["--bind", "ib99"], ["--bind", "ib99"]),
    (["--scheduler", "n1"], ["--scheduler", "n1", "host:port"]),
    (["--network", "profile:vgg16"], ["vgg16", "--benchmark 1"]),
    (["--network", "resnet", "--num-layers", "19"], ["19", "18, 34, 50"]),
    (["--network", "vgg11:maps=0", "--data", "digits:rgb32"],
     ["--network", "maps=0", "1 to 1024"]),
    (["--network", "vgg16"],
     ["--data digits", "28 x 28", "made for 3 x 224 x 224, 1000 classes"]),
    (["--network", "gpt"], ["gpt", "--data text"]),
    (["--data", "text"], ["lenet", "not text", "made for 1 x 28 x 28"]),
    (["--data", "cifar10:/nonexistent"], ["/nonexistent/data_batch_1.bin"]),
    (["--data", "imagefolder:/nonexistent"], ["/nonexistent/train"]),
    (["--benchmark", "1", "--image-shape", "3,x,3"], ["3,x,3", "3,224,224"]),
    (["--num-classes", "7"], ["--num-classes", "--benchmark 1"]),
    (["--image-shape", "3,64,64"], ["--image-shape", "imagefolder"]),
    (["--network", "gpt", "--data", "text", "--random-mirror", "1"],
     ["--random-mirror", "text"]),
    (["--network", "linear", "--bn-stats", "rank0"],
     ["--bn-stats", "linear", "batch normalisation"]),
    (["--benchmark", "1", "--network", "profile:vgg16", "--label-smoothing",
      "0.1"], ["--label-smoothing", "no model"]),
    (["--benchmark", "1", "--network", "profile:vgg16", "--image-shape",
      "3,8,8"], ["--image-shape", "profile"]),
    (["--kv-store", "local", "--what-if", "1gbit"], ["local", "--what-if"]),
    (["--emulate-workers", "4", "--resend"],
     ["--resend", "--emulate-workers"]),
    (["--pad-size", "2"], ["--pad-size", "--random-crop 1"]),
    (["--warmup-epochs", "2"], ["--warmup-epochs 2", "--num-epochs 2"]),
    (["--resume"], ["--resume", "--checkpoint DIR"]),
    (["--keep", "3"], ["--keep", "--checkpoint"]),
    (["--target", "2"], ["--target 2", "0.97"]),
    (["--emulate-workers", "4", "--workers", "2"],
     ["--workers", "--emulate-workers"]),
    (["--emulate-workers", "4", "--link", "1gbit"],
     ["--link", "--emulate-workers"]),
    (["--emulate-workers", "4", "--servers", "0"],
     ["--emulate-workers", "--servers 1"]),
    (["--emulate-workers", "0"], ["--emulate-workers", "0"]),
    (["--target", "0.9", "--benchmark", "1"], ["--target", "--benchmark 1"]),
    (["--jobs", "0"], ["--jobs", "0"]),
    (["--jobs", "2"], ["--jobs", "one run"]),
    (["--compare", "none,auto", "--jobs", "2"], ["--jobs 2", "auto"]),
    (["--compare", "none,2bit", "--jobs", "2", "--connections", "auto"],
     ["--jobs 2", "auto"]),
    (["--compare", "none,2bit", "--jobs", "2", "--what-if", "1gbit"],
     ["--jobs 2", "--what-if"]),
    (["--compare", "none,2bit", "--jobs", "2", "--gpus", "0"],
     ["--jobs 2", "GPUs"]),
    (["--what-if"], ["--what-if needs a value"]),
    (["--what-if", ""], ["--what-if", "100mbit,1gbit"]),
    (["--what-if", "fast"], ["--what-if", "fast", "100mbit,1gbit"]),
    (["--what-if", "none"], ["--what-if", "none", "100mbit,1gbit"]),
    (["--what-if", "1gbit", "--local-steps", "4"],
     ["--what-if", "--local-steps"]),
    (["--checkpoint", "c", "--kv-store", "dist_async", "--update-on",
      "server"], ["dist_async", "--checkpoint", "dist_sync"]),
    (["--checkpoint", "c", "--seed", "1,2"], ["--checkpoint", "one seed"]),
    *[(["--gc-type", f"{codec}:block=100"],
       [f"--gc-type {codec}:block=100", "multiple of 64"])
      for codec in ("int8", "int4", "qsgd")],
    (["--gc-type", "onebit:block=200"],
     ["--gc-type onebit:block=200", "multiple of 128"]),
    (["--compare", "none,int8:block=100"],
     ["--compare int8:block=100", "multiple of 64"]),
    (["--compare", "none,int8:block=100+lr=0.1"],
     ["--compare int8:block=100+lr=0.1", "multiple of 64"]),
    (["--gc-type", "int8:block=100", "--explain"],
     ["--gc-type int8:block=100", "multiple of 64"]),
    (["--gc-rule", "fc=int8:block=100"], ["--gc-rule", "multiple of 64"]),
    (["--gc-type", "auto", "--gc-allow", "int8:block=100"],
     ["--gc-allow 'int8:block=100'", "multiple of 64"]),
    (["--gc-type", "qsgd:natural=1,levels=100"],
     ["--gc-type levels=100", "colons"]),
    (["--compare", "none,"], ["--compare 'none,'", "comma"]),
    (["--gc-rule", "foo(=none"], ["--gc-rule: ", "foo("]),
    (["--explain", "--log-json"], ["--log-json", "--explain"]),
    (["--mom", "1"], ["--mom", "'1'", "below 1"]),
    (["--mom", "1.5"], ["--mom", "'1.5'", "below 1"]),
    (["--lr", "0"], ["--lr", "'0'", "more than 0"]),
    (["--outer-lr", "0"], ["--outer-lr", "'0'", "more than 0"]),
    (["--gc-warmup-steps", "100"], ["--gc-warmup-steps", "no codec"]),
    (["--servers", "0"], ["--servers 0", "--kv-store allreduce"]),
    (["--network", "resnet"], ["--network resnet", "--num-layers 18, 34"]),
    (["--transport", "rdma"], ["--transport", '"rdma"', "tcp"]),
    (["--tls", "bogus"], ["--tls: ", "bogus"]),
    (["--rails", "eth99", "--insecure"], ["--rails: ", "eth99"]),
    (["--plan", "/nonexistent.json"],
     ["--plan /nonexistent.json", "No such file"]),
    (["--secret-file", "/nope"],
     ["--secret-file", '"/nope"', "No such file", "openssl rand"]),
    (["--dead-timeout", "0"], ["--dead-timeout 0", "0.5 to 86400 (seconds"]),
    (["--workers", "10000"],
     ["--workers 10000", "1 to 1024", "telegrad-topo simulate"]),
]

# flags -> code, what the line must contain: codes other than 2.
REFUSED = [
    (["--bind", "192.0.2.2"], 30,
     ["--bind 192.0.2.2", "--secret-file", "--insecure"]),
    (["--transport", "IB"], 31, ["--transport IB", "no IB port", "auto"]),
    (["--transport", "EFA"], 31, ["--transport EFA", "no EFA port", "auto"]),
]


def png(side=8):
    """A grey image, as bytes of a file."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    rows = b"".join(b"\0" + bytes([128] * side) for _ in range(side))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Usage(SystemTest):
    def refused(self, flags, words, code=2, **more):
        run = self.run_to_end(flags, code=code, seconds=20, **more)
        lines = run.stderr().splitlines()
        self.assertEqual(len(lines), 1, run.output())
        self.assertLess(len(lines[0]), 400, lines[0])
        self.assertIn("--", lines[0])  # a flag
        for word in words:
            self.assertIn(word, run.stderr())
        self.assertNotIn("terminate called", run.stderr())
        self.assertEqual(run.stdout(), "")
        self.assert_all_gone(1)

    def test_wrong_flags_give_2_and_one_line(self):
        for flags, words in WRONG:
            with self.subTest(" ".join(flags)):
                self.refused(flags, words)

    # Before a process starts: nothing is on standard output.
    def test_other_codes_come_with_one_line_too(self):
        if os.path.isdir("/sys/class/infiniband"):
            self.skipTest("this host has RDMA cards")
        prefix = ["unshare", "--net", "sh", "-c",
                  "ip link set lo up; ip address add 192.0.2.2/32 dev lo; "
                  'exec "$0" "$@"']
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        for flags, code, words in REFUSED:
            with self.subTest(" ".join(flags)):
                self.refused(flags, words, code=code, prefix=prefix)

    def test_flags_of_tf_cnn_benchmarks_are_taken(self):
        text = self.run_to_end(["--model=mlp", "--num_gpus", "2", "--batch_size=32",
                                "--kv_store=local", "--explain"]).stdout()
        self.assertIn("fc1.weight", text)
        self.refused(["--model", "nonet"], ["--network nonet"])

    # An 18 setting comparison is not lost by the next command.
    def test_results_of_another_command_are_moved_aside(self):
        flags = ["--network", "mlp", "--num-epochs", "1", "--num-batches", "3"]
        self.run_to_end([*flags, "--compare", "none,2bit"])
        run = self.run_to_end([*flags, "--compare", "none,2bit"])
        self.assertNotIn("moved", run.output())
        run = self.run_to_end([*flags, "--compare", "none,2bit", "--lr", "0.1"])
        self.assertIn("results of another command in telegrad-out were moved to "
                      + self.path("telegrad-out.1"), run.stderr())
        run = self.run_to_end([*flags, "--gc-type", "int8"])
        self.assertIn("telegrad-out.2", run.stderr())
        for out, names in (("telegrad-out", ["int8"]),
                           ("telegrad-out.1", ["none", "2bit"]),
                           ("telegrad-out.2", ["none", "2bit"])):
            self.assertEqual([each["setting"] for each in self.summary(out)],
                             names)
            self.assertTrue(os.path.exists(self.path(out, "report.html")))
        self.run_to_end([*flags, "--compare", "none,2bit", "--lr", "0.1",
                         "--out", "telegrad-out.2", "--continue"])

    def test_workers_are_the_launchers(self):
        self.refused(["--workers", "3"],
                     ["--workers 3", "torchrun", "started 2", "leave it out"],
                     env={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2",
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})

    def test_a_checkpoint_that_does_not_fit_is_told_before_the_start(self):
        flags = ["--network", "mlp", "--num-batches", "3", "--checkpoint",
                 "saved"]
        self.run_to_end([*flags, "--num-epochs", "2"])
        for more, words in ((["--workers", "4"], ["workers '2'", "'4'"]),
                            (["--servers", "2"], ["servers '1'", "'2'"]),
                            (["--num-epochs", "1"],
                             ["2 whole epochs", "--num-epochs 1"])):
            with self.subTest(more[0]):
                self.refused([*flags, "--num-epochs", "2", "--resume", *more]
                             if more[0] != "--num-epochs" else
                             [*flags, "--resume", *more],
                             ["--resume", *words], code=31)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data)

    def test_data_that_cannot_be_are_refused_by_file_and_place(self):
        self.write("empty", b"")
        self.write("short", b"a" * 1000)
        gpt = ["--network", "gpt", "--data"]
        self.refused([*gpt, "text:empty"], ["--data text:empty", "0 bytes"])
        self.refused([*gpt, "text:short"], ["1000 bytes", "129"])
        self.refused([*gpt, "text:."], ["--data text:."])
        record = bytes(3073)
        for part in (1, 2, 3, 4, 5):
            self.write(f"c/data_batch_{part}.bin", 40 * record)
        self.write("c/test_batch.bin", record + record[:-1])
        cifar = ["--network", "resnet20", "--data", "cifar10:c"]
        self.refused(cifar, ["c/test_batch.bin: byte 6145", "record 1"])
        self.write("c/test_batch.bin", record + b"\x0a" + record[1:])
        self.refused(cifar, ["c/test_batch.bin: byte 3073", "label 10"])

    def test_an_image_that_is_none_is_named(self):
        for part in ("train", "val"):
            for name in ("a", "b"):
                for i in range(40):
                    self.write(f"images/{part}/{name}/{i:02}.png", png())
        flags = ["--network", "mlp", "--data", "imagefolder:images",
                 "--image-shape", "1,8,8", "--batch-size", "8", "--num-epochs",
                 "1"]
        self.run_to_end(flags)
        # Without --image-shape, lenet's own.
        text = self.run_to_end(["--network", "lenet", "--data",
                                "imagefolder:images", "--batch-size", "8",
                                "--explain"]).stdout()
        self.assertRegex(text, r"fc1.weight +400000 ")
        self.write("images/train/b/39.png", b"GIF89a")
        run = self.run_to_end(flags, code=2)
        self.assertIn("images/train/b/39.png: byte 0", run.stderr())
        # The first one tells before anything is started.
        self.write("images/val/a/00.png", b"GIF89a")
        self.refused(flags, ["--data imagefolder:images",
                             "images/val/a/00.png: byte 0"])

    def test_what_computes_networks_is_opened_for_networks_alone(self):
        alone = shutil.copy(BINARY, self.folder)  # without its library
        self.run_to_end(["--help"], program=alone)
        self.write("small.csv", b"name,shape,elements\na.w,64,64\n")
        self.run_to_end(["--benchmark", "1", "--network", "profile:small.csv",
                         "--num-batches", "3"], program=alone)
        for flags in SHORT, [*SHORT, "--explain"]:
            run = self.run_to_end(flags, code=2, program=alone)
            self.assertIn("libtelegrad-networks.so", run.stderr())

    def test_emulated_workers_are_not_for_a_launcher(self):
        self.refused(["--emulate-workers", "2"],
                     ["--emulate-workers", "torchrun", "leave it out"],
                     env={"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2",
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})

    def test_the_environment_names_the_transport_unless_a_flag_does(self):
        smoke = {"TELEGRAD_TRANSPORT": "smoke"}
        run = self.run_to_end(["--num-epochs", "1"], code=2, seconds=20,
                              env=smoke)
        self.assertIn("smoke", run.stderr())
        self.run_to_end(["--transport", "inproc"], code=2, seconds=20,
                        env=smoke)
        self.assertNotIn("smoke", self.runs[-1].stderr())

    def test_variables_of_other_programs_are_named(self):
        for transport, name, value in (("ofi", "FI_PROVIDER", "no_such"),
                                       ("ucx", "UCX_TLS", "rc")):
            run = self.run_to_end(
                ["--num-epochs", "1", "--transport", transport], code=2,
                env={name: value})
            self.assertIn(f"{name}={value}", run.stderr())

    def test_too_few_open_files_are_told_with_their_limit(self):
        for flags, limit in ((["--transport", "tcp"], 16),
                             (["--transport", "ucx"], 40)):
            run = self.run_to_end(
                [*flags, "--network", "mlp", "--workers", "8", "--servers",
                 "2"], code=32, prefix=["prlimit", f"--nofile={limit}"])
            self.assertIn("ulimit -n", run.stderr())
            self.assertIn(f"open files is {limit}", run.stderr())
        # Of any number that is too small: UCX's assertion was a dead peer.
        for limit in (8, 10, 11, 12, 13, 14):
            run = self.start([*SHORT, "--transport", "tcp"],
                             prefix=["prlimit", f"--nofile={limit}"])
            if self.wait(run, 120) != 0:
                self.assertEqual(run.process.returncode, 32, run.output())
                self.assertIn(f"open files is {limit}", run.stderr())

    def test_results_that_cannot_be_written_are_an_error(self):
        run = self.start(["--out", "results", *SHORT])
        self.wait_for_training(run)
        shutil.rmtree(self.path("results"))
        with open(self.path("results"), "w", encoding="utf-8"):
            pass
        self.assertEqual(self.wait(run, 120), 2, run.output())
        self.assertIn("results", run.stderr())
        self.assertIn("accuracy", run.stdout())

    def test_help_names_every_flag_network_codec_and_transport(self):
        text = self.run_to_end(["--help"], seconds=20).stdout()
        for word in ("--compare --gc-type --gc-threshold --gc-min-bytes "
                     "--gc-packing --gc-rule --gc-warmup-steps --gc-guard --gc-allow "
                     "--gc-reply --gc-nonfinite --update-on --kv-store "
                     "--network --data --batch-size --num-epochs --lr --mom "
                     "--wd --seed --benchmark --num-batches --gpus --out --jobs --continue "
                     "--workers --servers --workers-serve --threads --chunk-elems "
                     "--job-id --join-timeout --dead-timeout --transport --tls --link "
                     "--bind --secret-file --insecure lenet mlp vgg16 digits "
                     "mnist:DIR none 2bit topk powersgd dist_sync ucx").split():
            self.assertIn(word, text)
        for unit in ("units of the gradient", "0.5:batch", "power of two"):
            self.assertIn(unit, " ".join(text.split()))
        self.assertNotIn("--internal", text)

    # Else ./telegrad demo would refuse them before it builds.
    def test_demo_knows_every_flag_of_the_help(self):
        text = self.run_to_end(["--help"], seconds=20).stdout()
        flags = re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.M)
        self.assertGreater(len(flags), 80)
        script = os.path.join(os.path.dirname(__file__), "../../telegrad")
        done = subprocess.run([script, "demo", *flags, "--bogus"], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no flag '--bogus'", done.stderr)

    def demo(self, *flags):
        script = os.path.join(os.path.dirname(__file__), "../../telegrad")
        done = subprocess.run([script, "demo", *flags], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_demo_refuses_names_before_it_builds(self):
        for flags, told in ((["--gc-type", "3bit"], "no codec '3bit'"),
                            (["--gc-type=3bit"], "no codec '3bit'"),
                            (["--compare", "none,3bit+lr=1"], "no codec '3bit'"),
                            (["--network", "nonet"], "no network 'nonet'"),
                            (["--data", "nodata:x"], "no data set 'nodata'")):
            self.assertIn(told, self.demo(*flags))
        text = self.run_to_end(["--help"], seconds=20).stdout()

        def names(head, tail):
            part = text.split(f"{head}:\n")[1].split(f"{tail}:\n")[0]
            found = re.findall(r"^ *(\S+)", part, re.M)
            self.assertGreater(len(found), 7, head)
            return found
        known = ["--compare", ",".join(["auto", "2bit:0.5+lr=1",
                                        *names("Codecs", "KVStores")])]
        for name in names("Networks", "Data"):
            known += ["--network", name]
        for name in names("Data", "Codecs"):
            known += ["--data", name]
        told = self.demo(*known, "--network", "resnet", "--num-layers", "50",
                         "--network", "gpt:layers=2", "--gc-type", "nocodec")
        self.assertIn("no codec 'nocodec'", told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
