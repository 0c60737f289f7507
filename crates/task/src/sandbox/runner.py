# Sets the limits of one process and all it starts, says that it has started, becomes the program.
import os
import resource
import sys


def become(memory, seconds, processes, size, path):
    for name, value in (('AS', memory), ('CPU', seconds), ('NPROC', processes), ('FSIZE', size),
                        ('NOFILE', 64), ('CORE', 0), ('MEMLOCK', 0), ('MSGQUEUE', 0)):
        kind = getattr(resource, 'RLIMIT_' + name)
        hard = resource.getrlimit(kind)[1]
        value = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
        resource.setrlimit(kind, (value, value))
    os.write(2, b'scalerl-started\n')
    sys.argv = [path]
    with open(path, 'rb') as file:
        text = file.read()
    # As if Python had been started with it: this module becomes the program's.
    main = globals()
    for name in ('become', 'os', 'resource', 'sys'):
        del main[name]
    main['__file__'] = path
    exec(compile(text, path, 'exec'), main)


become(*sys.argv[1:])
