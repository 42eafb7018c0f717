"""Quotas as files: our own quota file in YAML and JSON. Pure: text in, values out; whoever calls reads the file."""

from kquota.files.plain_json import dump_json
from kquota.files.quota_file import QuotaFile, QuotaFileEntry
from kquota.files.reader import read_quota_file
from kquota.files.writer import write_json, write_yaml

__all__ = ["QuotaFile", "QuotaFileEntry", "dump_json", "read_quota_file", "write_json", "write_yaml"]
