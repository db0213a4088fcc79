"""Programs in which a library, and no statement, changes what the last cell prints. A bar stands between cells."""

_MODULES = "import numpy as np, pandas as pd, json, io, csv, operator, functools, threading, sqlite3, logging"
_TABLE = "df = pd.DataFrame({'a': [3, 1, 2], 'b': list('xyx')})"
_BUFFER = "f = io.StringIO('a\\n1\\n2\\n')"

#: Each begins with the imports, or with those and a table `df`, or a buffer `f`.
LIBRARY_WAYS = [
    *(
        f"{_MODULES}|{program}"
        for program in (
            "x = np.arange(4.)|np.add(x, 1, out=x)|print(x)",
            "x = np.arange(4.)|y = np.zeros(4)|np.cumsum(x, out=y)|print(y)",
            "x = np.zeros(4)|np.add.at(x, [1, 1], 1)|print(x)",
            "x = np.array([3, 1])|np.ndarray.sort(x)|print(x)",
            "x = np.zeros(4)|a, b = np.split(x, 2)|a[0] = 7|print(x)",
            "x = np.zeros(3)|y = np.array(x, copy=False)|y[0] = 7|print(x)",
            "x = np.zeros(3)|y = np.asarray(x)|y[0] = 7|print(x)",
            "x = [3]|list.append(x, 4)|print(x)",
            "x = {}|dict.update(x, a=1)|print(x)",
            "x = {}|operator.setitem(x, 'a', 2)|print(x)",
            "x = [1]|operator.iadd(x, [2])|print(x)",
            "b = io.StringIO()|print('x', file=b)|print(b.getvalue())",
            "b = io.StringIO()|json.dump([1], b)|print(b.getvalue())",
            "b = io.BytesIO()|np.save(b, np.zeros(2))|print(len(b.getvalue()))",
            "b = io.StringIO()|w = csv.writer(b)|w.writerow([1])|print(b.getvalue())",
            "got = []|t = threading.Thread(target=got.append, args=(3,))|t.start()|t.join()|print(got)",
            "got = []|calls = [lambda: got.append(1)] * 2|[call() for call in calls]|print(got)",
            "b = io.StringIO()\nlog = logging.getLogger('ways')\nlog.setLevel(20)\n"
            "log.addHandler(logging.StreamHandler(b))|log.info('said')|print(b.getvalue())",
            "c = sqlite3.connect(':memory:')|pd.DataFrame({'a': [1]}).to_sql('t', c, index=False)"
            "|print(pd.read_sql('select a from t', c))",
            "class A:\n    n = 0\n    @functools.cached_property\n    def v(self):\n        A.n += 1\n"
            "        return A.n\na, b = A(), A()|a.v|print(b.v)",
            "class A:\n    def __init__(self):\n        self.index = []\na = A()|i = a.index"
            "|i.append(3)|print(a.index)",
            "class A:\n    def fit(self, x):\n        self.mean = x.mean()\n        return self\na = A()"
            "|a.fit(np.arange(3.))|print(a.mean)",
        )
    ),
    *(
        f"{_MODULES}|{_TABLE}|{program}"
        for program in (
            "df.index.name = 'k'|print(df.index.name)",
            "df.columns.name = 'k'|print(df.columns.name)",
            "d = df|d['n'] = 1|print(list(df))",
            "for frame in [df, df.copy()]:\n    frame['n'] = 1|print(list(df))",
            "def clean(d):\n    d['n'] = 1\n    return d|out = df.pipe(clean)|print(list(df))",
            "seen = []|r = df.groupby('b').agg({'a': lambda g: seen.append(len(g)) or 1})|print(seen)",
            "limit = 1|print(len(df.query('a > @limit')))",
            "limit = 1|def count(d):\n    return len(d.query('a > @limit'))|print(count(df))",
            "x = np.arange(3)\ny = x + 1|z = pd.eval('x + y')|print(z)",
            "b = io.StringIO()|df.to_csv(b)|print(b.getvalue())",
            "b = io.StringIO()|df.info(buf=b)|print(b.getvalue())",
            "d = df.copy(deep=False)|d.loc[0, 'a'] = 9|print(d.a.tolist())",
            "g = df.groupby('b')|r = df.a.rolling(2)|df['a'] = df.a * 2|print(g.a.sum().tolist())",
        )
    ),
    *(
        f"{_MODULES}|{_BUFFER}|{program}"
        for program in (
            "v = pd.read_csv(f)|print(repr(f.read()))",
            "for line in f:\n    break|print(repr(f.read()))",
            "r = csv.reader(f)|h = next(r)|print(repr(f.read()))",
        )
    ),
]
