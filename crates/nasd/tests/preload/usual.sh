# What programs usually do, in a directory: usual.sh DIRECTORY. What it prints is the same each time.
set -eu
cd "$1"
export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git config --global user.name somebody
git config --global user.email somebody@somewhere
git config --global init.defaultBranch main

for number in 1 2 3 4 5 6 7 8 9; do
    echo "line $number" >> lines
    seq "$number" 500 > "seq$number"
done
sort -r lines | head -3 | tr a-z A-Z
(read -r first; read -r second; echo "$second then $first") < lines
exec 7< lines 8>> said
cat <&7 >&8
exec 7<&- 8>&-
wc -c said lines | tail -1
tar cf - seq* | (mkdir -p out; tar xf - -C out)
diff -r seq5 out/seq5
find . -name 'seq*' | wc -l

git init -q repository
cp seq* repository
cd repository
git add .
git commit -q -m 'All of them'
seq 1000 > seq1
git commit -q -a -m 'One of them'
git log --format='%h %s'
git fsck 2>&1 | head -3
cd ..
git clone -q repository clone
(cd clone && git rev-parse HEAD && git status --short && git repack -q -a -d && git fsck)

python3 - <<'EOF'
import json, os, shutil, sqlite3, subprocess, tempfile, concurrent.futures

with open("facts.json", "w") as out:
    json.dump({str(n): n * n for n in range(1000)}, out)
print(len(json.load(open("facts.json"))))
with sqlite3.connect("data.db") as database:
    database.execute("create table t (a integer primary key, b text)")
    database.executemany("insert into t (b) values (?)", [(str(n),) for n in range(2000)])
print(sqlite3.connect("data.db").execute("select count(*), max(a) from t").fetchall())
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda n: len(subprocess.run(["echo", str(n)], stdout=-1).stdout), range(40))))
child = os.fork()
if child == 0:
    open("child", "w").write("was here")
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), open("child").read())
shutil.copytree("out", "again")
print(len(os.listdir("again")))
EOF
