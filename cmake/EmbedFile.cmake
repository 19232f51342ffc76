# cmake -DOUT=x.cc -DNAME=kProfiles -DHEADER=a/b.h -DFILES="a.csv;b.csv" -P EmbedFile.cmake
# writes a table of {name without ending, content} as C++; the header declares it.
set(text "// Made by cmake/EmbedFile.cmake.\n#include \"${HEADER}\"\n\nnamespace telegrad {\n\nconst EmbeddedFile ${NAME}[] = {\n")
foreach(file ${FILES})
  get_filename_component(stem ${file} NAME_WE)
  file(READ ${file} content)
  string(APPEND text "    {\"${stem}\", R\"_(${content})_\"},\n")
endforeach()
string(APPEND text "    {nullptr, nullptr},\n};\n\n}  // namespace telegrad\n")
file(WRITE ${OUT} "${text}")
