"""The import that a name stands for by custom: `pd` is pandas, `train_test_split` scikit-learn's.

Small models use such names without their import, and do not find out from "name 'pd' is not defined" what to do.
"""

from __future__ import annotations

import re

_UNDEFINED = re.compile(r"NameError: name '(\w+)' is not defined")
_MODULES = {
    "np": "numpy",
    "numpy": "numpy",
    "pd": "pandas",
    "pandas": "pandas",
    "plt": "matplotlib.pyplot",
    "sns": "seaborn",
    "sm": "statsmodels.api",
    "smf": "statsmodels.formula.api",
    "px": "plotly.express",
    "pl": "polars",
    "scipy": "scipy",
    "sklearn": "sklearn",
}
#: Of the standard library those that data work uses: many others have names that variables have, too.
_STANDARD = {
    *("csv", "glob", "io", "itertools", "json", "math", "os", "pickle", "random", "re", "sqlite3"),
    *("statistics", "string", "sys", "time", "warnings"),
}
#: Names that are taken out of a module, by the module.
_MEMBERS = {
    "collections": "Counter defaultdict",
    "datetime": "datetime timedelta",
    "pathlib": "Path",
    "scipy": "stats",
    "scipy.stats": (
        "chi2_contingency f_oneway kstest kurtosis linregress mannwhitneyu norm normaltest pearsonr shapiro skew"
        " spearmanr ttest_1samp ttest_ind ttest_rel zscore"
    ),
    "sklearn.cluster": "DBSCAN KMeans",
    "sklearn.decomposition": "PCA",
    "sklearn.ensemble": (
        "GradientBoostingClassifier GradientBoostingRegressor IsolationForest RandomForestClassifier"
        " RandomForestRegressor"
    ),
    "sklearn.impute": "KNNImputer SimpleImputer",
    "sklearn.linear_model": "Lasso LinearRegression LogisticRegression Ridge",
    "sklearn.metrics": (
        "accuracy_score classification_report confusion_matrix f1_score mean_absolute_error mean_squared_error"
        " precision_score r2_score recall_score roc_auc_score silhouette_score"
    ),
    "sklearn.model_selection": "GridSearchCV KFold StratifiedKFold cross_val_score train_test_split",
    "sklearn.neighbors": "KNeighborsClassifier KNeighborsRegressor",
    "sklearn.pipeline": "Pipeline make_pipeline",
    "sklearn.preprocessing": "LabelEncoder MinMaxScaler OneHotEncoder PolynomialFeatures StandardScaler",
    "sklearn.svm": "SVC SVR",
    "sklearn.tree": "DecisionTreeClassifier DecisionTreeRegressor",
}
_FROM = {name: module for module, names in _MEMBERS.items() for name in names.split()}


def import_for(error: str) -> str:
    """Give the import that an error, `NameError: name ... is not defined`, asks for by custom, or ""."""
    found = _UNDEFINED.match(error)
    if found is None:
        return ""
    name = found[1]
    if name in _MODULES:
        module = _MODULES[name]
        return f"import {module}" if module == name else f"import {module} as {name}"
    if name in _FROM:
        return f"from {_FROM[name]} import {name}"
    return f"import {name}" if name in _STANDARD else ""
