"""A script with options of our names, that reads stdin, has an excepthook and handlers at its exit."""

import argparse
import atexit
import os
import signal
import sys

import torch

parser = argparse.ArgumentParser()
parser.add_argument("-m", "--module")
parser.add_argument("-o", "--output")
parser.add_argument("--format")
parser.add_argument("--select", nargs="*")
parser.add_argument("--fail-on")
parser.add_argument("rest", nargs="*")
print(parser.parse_args(), parser.prog, sys.argv, sys.path[0], __file__, os.getcwd(), __name__, __spec__, __package__)
print(sorted(globals()), type(__builtins__), type(__loader__), sys.modules["__main__"].__dict__ is globals())
print(input(), sys.stdin.read().split())
with open("written.txt", "w") as file:
    file.write("ünïcode")
signal.signal(signal.SIGUSR1, lambda *_: print("signal"))
os.kill(os.getpid(), signal.SIGUSR1)
weights = torch.ones(2, requires_grad=True)


@atexit.register
def last():
    print("last", weights.grad)


def hook(kind, error, traceback):
    print("hooked", kind.__name__, error, traceback.tb_lineno, traceback.tb_next)


sys.excepthook = hook
weights.sum().backward()
raise ValueError("to the hook")
