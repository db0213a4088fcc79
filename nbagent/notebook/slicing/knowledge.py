"""What well-known functions, methods and magics do to values and to the process, by name.

A name that is not here may do anything to what it is called on: when unsure, a cell is kept.
"""

from __future__ import annotations

import builtins
import datetime
import pathlib
import re
from fractions import Fraction

from nbagent.tools.findings import words

BUILTINS = frozenset(dir(builtins)) | {"__name__", "display"}
#: Builtins that look at names which the code does not spell out, or run code.
OPAQUE_BUILTINS = words("exec eval compile globals locals vars __import__ breakpoint execfile")
#: Builtins that change their first argument.
CHANGING_BUILTINS = words("next setattr delattr anext")
#: Builtins whose value holds nothing of what they were given.
FRESH_BUILTINS = words(
    "abs all any ascii bin bool callable chr complex dir divmod float format hasattr hash hex id input int "
    "isinstance issubclass len oct ord pow print range repr round str type bytes sum"
)
#: Builtins that put what they were given into a new container.
SHALLOW_BUILTINS = words("list tuple set dict frozenset sorted bytearray")
#: Others that call nothing of what they are given.
LOOKING_BUILTINS = words("print display min max reversed")
#: Whose value is used up by whoever looks at it.
ITERATORS = words("iter map filter zip enumerate reversed open aiter")

#: Methods of values that cannot change, and of looks at values that can.
PURE_METHODS = (
    frozenset(
        name
        for kind in (
            *(str, bytes, int, float, complex, tuple, frozenset, range, Fraction, datetime.datetime),
            *(datetime.timedelta, pathlib.PurePosixPath, re.Pattern, re.Match),
        )
        for name in dir(kind)
        if not name.startswith("_") and name not in ("start", "stop", "step")  # threads and timers have these, too
    )
    | words(
        "get keys values items copy exists is_file is_dir read_text read_bytes stat iterdir glob rglob resolve"
    )
    | words(  # pandas and numpy
        "abs agg aggregate all any apply applymap argmax argmin argsort asfreq assign astype at_time autocorr "
        "between bfill categories clip combine_first"
        " contains corr corrwith count cov crosstab cummax cummin cumprod "
        "cumsum describe diff div divide dot drop drop_duplicates droplevel dropna dt duplicated eq equals ewm "
        "expanding explode ffill fillna filter first flatten floordiv ge groupby gt head idxmax idxmin info "
        "infer_objects interpolate isin isna isnull iterrows"
        " itertuples join kurt kurtosis last le loc lt map mask "
        "max mean median melt memory_usage merge min mod mode mul multiply ne nlargest notna notnull nsmallest "
        "nunique pct_change pipe pivot pivot_table prod product quantile query rank ravel rdiv reindex rename "
        "rename_axis replace resample reset_index reshape rolling round rpow rsub select_dtypes sem set_axis "
        "set_index shift size skew sort_index sort_values squeeze stack std sub subtract sum swapaxes swaplevel "
        "tail take to_datetime to_dict to_frame to_list to_numpy to_numeric to_period to_records to_string "
        "to_timestamp tolist total_seconds trace"
        " transform transpose truncate tz_convert tz_localize unique unstack "
        "value_counts var where xs zscore item searchsorted nonzero conj year month day hour weekday day_name "
        "month_name normalize to_markdown to_json to_html to_latex to_csv rjust "
    )
    | words("predict predict_proba decision_function inverse_transform score get_params get_feature_names_out")
    | words("most_common elements total as_posix groups groupdict fetchone fetchall collect lazy with_columns")
)
#: Methods whose value holds nothing of what they were called on.
FRESH_METHODS = words(
    "sum mean median std var count nunique any all corr cov quantile describe value_counts nbytes memory_usage "
    "info startswith endswith isdigit isalpha strip lstrip rstrip lower upper title split rsplit splitlines join "
    "format encode decode strftime isoformat total_seconds exists is_file is_dir read_text idxmax idxmin argmax "
    "argmin skew kurt kurtosis sem prod isna isnull notna notnull duplicated isin score to_string to_json "
    "find rfind is_unique equals day_name month_name most_common_value autocorr zfill"
)
#: Methods whose value may be, or show, a part of what they were called on.
VIEW_METHODS = words(
    "get item pop popitem popleft setdefault reshape ravel view transpose squeeze swapaxes to_numpy first last "
    "iterrows itertuples loc iloc values items keys most_common elements __getitem__ __next__ send"
)
#: Changes of the container alone: what it holds stays as it is.
CONTAINER_METHODS = words(
    "add append appendleft clear discard extend insert pop popitem popleft remove reverse setdefault sort update "
    "extendleft rotate difference_update intersection_update symmetric_difference_update move_to_end"
)
#: Methods and functions whose value is used up by whoever goes through it.
#: Open files and buffers are among them: each read and write moves on in them.
ITERATOR_FUNCTIONS = words(
    "finditer iterrows itertuples iterdir glob iglob rglob scandir walk reader DictReader open popen fdopen "
    "urlopen StringIO BytesIO TextIOWrapper NamedTemporaryFile TemporaryFile SpooledTemporaryFile"
)
#: Functions whose value holds nothing of their arguments, with all of the named modules.
FRESH_FUNCTIONS = frozenset({"copy.deepcopy", "numpy.array", "numpy.copy", "json.dumps", "json.loads"})
#: Functions named like methods that give something new, which give views.
VIEW_FUNCTIONS = frozenset({"numpy.split", "PIL.Image.open"})
FRESH_MODULES = ("math.", "statistics.", "datetime.", "random.", "time.", "os.path.", "re.")
#: Functions that give a new container of what they were given.
SHALLOW_FUNCTIONS = frozenset({"copy.copy", "pandas.concat", "pandas.merge", "collections.Counter"})

#: Attributes that hold nothing of their object.
FRESH_ATTRIBUTES = words("shape size ndim dtype dtypes empty nbytes name __name__ columns index year month day")
#: Methods and functions that change their arguments.
ARGUMENT_CHANGING = words(
    "shuffle fill_diagonal copyto put place putmask heappush heappop heapify heapreplace heappushpop insort "
    "insort_left insort_right readinto readinto1 setitem delitem iadd iand iconcat ifloordiv ilshift imatmul imod "
    "imul ior ipow irshift isub itruediv ixor to_sql to_excel to_hdf"
)
#: Keyword arguments that name what a call writes its result into, or say that it does.
WRITTEN_KEYWORDS = words("out inplace overwrite_a overwrite_b overwrite_x overwrite_input")
#: Functions and methods that read names of the namespace in a text: SQL over tables, formulas.
TEXT_READERS = words("query eval evaluate sql execute sqldf from_formula ols glm logit probit poisson")

#: Packages whose functions leave their arguments and their own state alone, but for the names above and below.
PURE_PACKAGES = words(
    "math cmath statistics json re numpy pandas matplotlib seaborn scipy collections itertools functools operator "
    "datetime time os string textwrap decimal fractions random calendar pathlib copy io csv glob pprint typing "
    "dataclasses enum abc hashlib base64 struct bisect heapq sys uuid zoneinfo polars pyarrow IPython "
    "urllib html unicodedata difflib inspect types numbers secrets platform shutil warnings logging contextlib "
    "statsmodels plotly altair"
)
#: Functions of modules that change how the rest of the process works.
SETTERS = re.compile(
    r"set_\w+|set[A-Z]\w*|use|use_\w+|rc|rcdefaults|reset_\w+|seterr\w*|filterwarnings|simplefilter|resetwarnings|"
    r"basicConfig|captureWarnings|disable|register\w*|enable\w*|chdir|putenv|unsetenv|setlocale|setrecursionlimit|"
    r"setcontext|option_context|rc_context|errstate|catch_warnings|install\w*|patch\w*|init\w*|notebook_repr\w*|"
    r"invalidate_caches|reload|signal|alarm|settrace|setprofile|umask|tzset|getcontext|getLogger|stdout|stderr"
)
#: Not settings, though they are named so.
NOT_SETTERS = frozenset({"matplotlib.pyplot.setp"})
#: Objects of modules that are settings: a store into them, or a call of theirs, changes the process.
SETTINGS = words("environ rcParams options path modules stdout stderr warnoptions meta_path path_hooks")

SEEDS = {"random.seed": "random", "numpy.random.seed": "numpy", "numpy.random.set_state": "numpy"} | {
    "torch.manual_seed": "torch",
    "random.setstate": "random",
}
#: Functions and methods that draw from a global generator unless they are given one of their own.
DRAWING_METHODS = words(
    "sample train_test_split shuffle make_classification make_regression make_blobs permutation_importance"
)
#: Those that draw for some kinds of models only.
FITTING_METHODS = words("fit fit_transform fit_predict cross_val_score partial_fit")
OWN_GENERATOR = words("random_state seed rng generator")
NOT_DRAWING = words("default_rng Generator RandomState Random SystemRandom PCG64 SeedSequence getstate get_state")

#: Bases and decorators that add nothing which changes anything.
PLAIN_CLASSES = ("dataclasses.", "enum.", "abc.", "typing.", "functools.total_ordering")

FIGURE_MODULES = ("matplotlib.pyplot", "pylab", "seaborn", "plotly")
NEW_FIGURES = frozenset({"matplotlib.pyplot.figure", "matplotlib.pyplot.subplots", "matplotlib.pyplot.close"})
FIGURE_METHODS = words("plot hist boxplot")

PYTHON_MAGICS = words("time timeit capture prun")
SETTING_MAGICS = words(
    "matplotlib config load_ext reload_ext unload_ext autoreload precision env set_env cd pushd popd alias colors "
    "xmode pdb gui pip conda mamba uv bookmark"
)
SHOWING_MAGICS = words(
    "who who_ls whos pwd history hist psource pinfo pinfo2 pdoc pfile pycat lsmagic quickref dhist dirs html HTML "
    "javascript js latex markdown svg psearch page"
)
SHELL_CELLS = words("bash sh system sx ! !! cmd script")

#: What gives another value each time, by dotted name.
CLOCKS = frozenset(
    {f"time.{name}" for name in ("time", "time_ns", "perf_counter", "monotonic", "process_time", "ctime")}
    | {"time.localtime", "time.gmtime", "time.strftime", "datetime.datetime.now", "datetime.datetime.utcnow"}
    | {"datetime.datetime.today", "datetime.date.today", "pandas.Timestamp.now", "pandas.Timestamp.today"}
    | {"uuid.uuid1", "os.getpid", "os.times", "pandas.Timestamp.utcnow"}
)
ALWAYS_RANDOM = ("secrets.", "uuid.uuid4", "os.urandom", "random.SystemRandom")
