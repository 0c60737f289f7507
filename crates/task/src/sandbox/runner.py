# Sets the limits of one process and all it starts, says that it has started, becomes the program.
import os, resource, runpy, sys
memory, seconds, processes, size = (int(x) for x in sys.argv[1:5])
for name, value in (('AS', memory), ('CPU', seconds), ('NPROC', processes), ('FSIZE', size),
                    ('NOFILE', 64), ('CORE', 0), ('MEMLOCK', 0), ('MSGQUEUE', 0)):
    kind = getattr(resource, 'RLIMIT_' + name)
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
os.write(2, b'scalerl-started\n')
program = sys.argv[5]
sys.argv = [program]
runpy.run_path(program, run_name='__main__')
