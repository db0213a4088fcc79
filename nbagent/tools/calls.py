"""What well-known functions and methods do to files, the network and other programs, by name."""

from __future__ import annotations

from nbagent.tools.findings import words

RUNS = frozenset(
    {"os.system", "os.popen", "pty.spawn", "asyncio.create_subprocess_shell", "asyncio.create_subprocess_exec"}
    | {f"IPython.utils.process.{n}" for n in words("system getoutput")}
    | {f"subprocess.{n}" for n in words("run call check_call check_output Popen getoutput getstatusoutput")}
)
DELETES = frozenset(
    {"os.remove", "os.unlink", "os.rmdir", "os.removedirs", "shutil.rmtree", "send2trash.send2trash"}
    | {"distutils.dir_util.remove_tree"}
)
DESTROYS = frozenset(
    {
        "os.kill",
        "os.killpg",
        "os.truncate",
        "os.chown",
        "shutil.chown",
        "os.fork",
        "os.forkpty",
        "signal.pthread_kill",
        "types.FunctionType",
        "types.CodeType",
        "marshal.loads",
        "marshal.load",
    }
    | {f"os.{n}" for n in words("execl execle execlp execv execve execvp execvpe posix_spawn posix_spawnp")}
    | {f"psutil.Process().{n}" for n in words("kill terminate suspend send_signal")}
    | {f"code.{n}" for n in words("interact InteractiveConsole InteractiveInterpreter")}
    | {f"os.spawn{n}" for n in words("l le lp lpe v ve vp vpe")}
)
#: Functions that write, with the position of the path among their arguments.
WRITES = {
    "os.mkfifo": 0,
    "shutil.copy": 1, "shutil.copy2": 1, "shutil.copyfile": 1, "shutil.copytree": 1, "shutil.make_archive": 0,
    "os.symlink": 1, "os.link": 1,
    "numpy.save": 0, "numpy.savez": 0, "numpy.savez_compressed": 0, "numpy.savetxt": 0,
    "joblib.dump": 1, "torch.save": 1, "matplotlib.pyplot.imsave": 0, "cv2.imwrite": 0, "imageio.imwrite": 0,
    "pandas.ExcelWriter": 0, "pandas.HDFStore": 0, "shelve.open": 0, "logging.FileHandler": 0,
    "urllib.request.urlretrieve": 1,
}  # fmt: skip
MAKES = frozenset({"os.mkdir", "os.makedirs"})
#: What a path is not: an open file was graded where it was opened.
FILE_OBJECTS = frozenset(
    {"sys.stdout", "sys.stderr", "open()", "io.BytesIO()", "io.StringIO()", "pandas.ExcelWriter()"}
)
#: Functions that take a file away from where it was and put it elsewhere.
MOVES = frozenset({"os.rename", "os.renames", "os.replace", "shutil.move"})
#: `open` and its kind: the mode says what it does.
OPENS = frozenset(
    {"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open", "tarfile.open", "zipfile.ZipFile"}
    | {"h5py.File", "netCDF4.Dataset", "os.fdopen", "aiofiles.open"}
)
#: Methods that write where their path stands first; without one they give a string.
WRITE_METHODS = words(
    "savefig save savetxt write_csv write_parquet write_json write_excel write_html write_image "
    "write_ipc sink_csv sink_parquet save_model save_pretrained to_file to_netcdf to_zarr"
) | {f"to_{n}" for n in words("csv parquet excel json pickle feather hdf html latex markdown stata xml orc")}
#: Words by which those methods name their path.
PATH_WORDS = words("path_or_buf path excel_writer buf fname file filename fp filepath dst target name")
#: Methods of a path that act on it.
PATH_WRITES = frozenset({"write_text", "write_bytes"})
PATH_MAKES = frozenset({"touch", "mkdir"})
PATH_DELETES = frozenset({"unlink", "rmdir"})
SQL_METHODS = frozenset({"execute", "executemany", "executescript", "sql", "query", "raw_sql", "exec_driver_sql"})

NETWORK_MODULES = (
    "requests", "urllib.request", "urllib3", "httpx", "aiohttp", "http.client", "ftplib", "smtplib", "imaplib",
    "poplib", "telnetlib", "xmlrpc.client", "paramiko", "boto3", "botocore", "websocket", "websockets", "openai",
    "anthropic", "huggingface_hub", "google.cloud", "gspread", "yfinance", "wget", "pip", "kaggle", "tweepy",
)  # fmt: skip
NETWORK = frozenset(
    {"socket.socket", "socket.create_connection", "socket.create_server", "socket.getaddrinfo", "nltk.download"}
    | {"asyncio.open_connection", "asyncio.start_server", "webbrowser.open", "seaborn.load_dataset"}
    | {"datasets.load_dataset", "http.server.HTTPServer", "socketserver.TCPServer", "torch.hub.load"}
)
#: Functions of a network module that only make or read values.
QUIET = frozenset({"urllib.request.pathname2url", "urllib.request.url2pathname", "requests.Request", "httpx.URL"})

RUNS_TEXT = frozenset(
    {"exec", "eval", "compile", "execfile", "timeit.timeit", "timeit.repeat", "cProfile.run", "profile.run"}
)
#: What they read may be a program: bytes in the code, or fetched, that hide an action.
UNPICKLES = frozenset({f"{module}.loads" for module in words("pickle cloudpickle dill _pickle jsonpickle")})
#: Functions that run a file.
RUNS_FILES = frozenset({"runpy.run_path", "runpy.run_module"})
#: Functions that look an attribute up by a name in a text.
NAMES_ATTRIBUTE = frozenset({"operator.methodcaller", "operator.attrgetter"})
#: Functions that show something which the page fetches or runs: always, or where they are given an address.
IN_THE_PAGE = frozenset({f"IPython.display.{name}" for name in words("Javascript IFrame YouTubeVideo VimeoVideo")})
BY_ADDRESS = frozenset({f"IPython.display.{name}" for name in words("Image Audio Video HTML SVG Markdown")})
#: Methods that write many files at once.
UNPACKS = frozenset({"extractall", "unpack_archive"})
IMPORTS = frozenset({"__import__", "importlib.import_module"})
#: Modules through which code can reach the system: a name that is looked up in them at run time hides an action.
POWERFUL = words("os shutil subprocess builtins sys importlib socket posix pathlib")
#: Tables of names: a subscript of one stands for what is named.
TABLES = frozenset({"sys.modules", "globals()", "locals()", "vars()"})
LOOK_UPS = frozenset({"__subclasses__", "__globals__", "__builtins__", "__loader__", "__getattribute__"})

READ_MAGICS = words(
    "autoreload bookmark capture colors config debug dhist dirs doctest_mode env gui history "
    "hist load_ext lsmagic macro magic matplotlib notebook page pastebin pdb pdef pdoc pfile pinfo "
    "pinfo2 popd precision prun psearch psource pwd pycat pylab quickref recall reload_ext reset "
    "reset_selective set_env subplots tb unload_ext who who_ls whos xdel xmode markdown latex svg "
    "load"
)
#: Magics whose line (and cell) is Python again.
PYTHON_MAGICS = words("time timeit prun memit mprun lprun capture debug python python3 pypy")
SHELL_MAGICS = frozenset({"bash", "sh", "system", "sx", "!", "!!", "cmd"})
SHELL_ALIASES = words("cat cp ldir less lf lk ll ls lx mkdir more mv rm rmdir man")
#: Graded by name already, where the owner is known.
KNOWN_METHODS = frozenset({"os.system", "shutil.rmtree", "get_ipython().system"})
#: Names of methods that are dangerous whatever they are looked up in.
DANGEROUS = frozenset(name.rpartition(".")[2] for name in RUNS | DELETES | DESTROYS | MOVES) - words(
    "run call replace terminate kill"
)
STARS = frozenset(RUNS | DELETES | DESTROYS | MOVES | frozenset(WRITES) | NETWORK)
