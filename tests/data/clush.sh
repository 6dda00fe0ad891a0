#!/bin/sh
# clush, with the options that docs/admin.md uses. It ends with a status other than 0 where one host's command does.
nodes=all copy='' dest='' status=0
while :; do
  case "$1" in
    -a | -p) shift ;;
    -w) nodes="$2" && shift 2 ;;
    --copy) copy="$2" && shift 2 ;;
    --dest) dest="$2" && shift 2 ;;
    *) break ;;
  esac
done
while read -r name pid; do
  case ",${nodes}," in *,all,* | *",${name},"*) ;; *) continue ;; esac
  if [ -n "${copy}" ]; then set -- cp -p "${copy}" "${dest}"; fi
  there="nsenter --target ${pid} --net --mount --uts env PATH=/run/next:${PATH}"
  output="$(${there} sh -c "$*" 2>&1 </dev/null)" || status=1
  printf '%s\n' "${output}" | sed "s/^/${name}: /"
done </root/nodes
exit "${status}"
